"""Every writing command as a small scenario over an injected file system.

A scenario says how a folder looks before, what is done in it, how to go on afterwards, and what must be true then.
It watches just the operations of its command. `SCENARIOS` is the registry that the fault suite runs; a test compares
it with what the code holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from data_prep.pipeline import prepare
from ledger.audit import reconcile
from ledger.checkpoints import read_checkpoint
from ledger.maintain import add_waiver, attest_run, diagnose, repair_run, seal_run, write_verdict
from ledger.recorder import RunRecorder
from ledger.recorder.evaluations import store_measurement
from ledger.records.layout import LOG, RUN, SEAL, WAIVERS
from ledger.records.waivers import Waiver
from ledger.report.files import write_report
from ledger.storage.filesystem import OS, FileSystem
from tests.data_prep.corpus import configure, texts, write_jsonl
from tests.support.faults import diverted
from tests.support.faults_checks import (
    NEWER_REPORT,
    OLDER_REPORT,
    check_attestation,
    check_attested,
    check_dataset,
    check_newer_report,
    check_passed,
    check_report,
    check_run,
    check_same_dataset,
    check_sealed,
    check_stage,
    check_stage_done,
    check_weights,
)
from tests.support.faults_locks import (
    check_locks,
    check_locks_done,
    keep_locks,
    keep_locks_again,
    older_lock,
)
from tests.support.faults_pilot import pilot_folder, record_pilot, rehearse
from tests.support.faults_session import RAISED, SETTINGS, session
from tests.support.faults_trainer import data_beside, finish_training, train_to_a_checkpoint, trained
from tests.support.toy import (
    ToyLoop,
    attempt,
    begin,
    environment,
    evaluate,
    measurement,
    plan_of,
    save,
    train,
)
from trainer.exporting import export_checkpoint


class Watchable(Protocol):
    """What can be told when a command begins and ends."""

    def watch(self, *, only: Callable[[str], bool] | None = None) -> None:
        """Look at the operations from here on."""
        ...

    def unwatch(self) -> None:
        """Look no more."""
        ...

    def promise(self, path: Path) -> None:
        """Hear that what stands at this path was acknowledged."""
        ...


@dataclass(frozen=True)
class Scenario:
    """One writing command and how to try it."""

    name: str
    folder: str
    """The folder that the command writes, below the scenario's place."""
    set_up: Callable[[Path], None]
    act: Callable[[Path, Any], None]
    check: Callable[..., list[str]]
    recover: Callable[[Path, FileSystem], None]
    finished: Callable[[Path, Path], list[str]]
    """Called with the place and the place of an undisturbed control."""
    most: int | None = None
    """So many faults are tried at most, because a try takes long."""
    reports: bool = False
    """What the system refuses is a part of the command's answer and no error."""


def finish_run(place: Path, fs: FileSystem = OS) -> None:
    """Train a run to its target, from wherever its records stand."""
    session(place / "run", fs, train)


def finish_raised_run(place: Path, fs: FileSystem = OS) -> None:
    """Train a run to its raised target."""
    session(place / "run", fs, train, settings=RAISED)


# What the scenarios set up.


def nothing(place: Path) -> None:
    """Begin with an empty folder."""
    place.mkdir(exist_ok=True)


def interrupted_run(place: Path) -> None:
    """Begin with a run that was killed behind its checkpoint and left a torn tail."""

    def work(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        attempt(recorder, loop)
        save(recorder, loop, "interval")
        attempt(recorder, loop)
        recorder.abandon()

    nothing(place)
    session(place / "run", OS, work)
    with (place / "run" / LOG).open("ab") as log:
        log.write(b'{"event":"train","seq":9')


def finished_run(place: Path) -> None:
    """Begin with a run that reached its target."""
    nothing(place)
    finish_run(place)
    write_verdict(place / "run", reconcile(place / "run"))


def kept_run(place: Path) -> None:
    """Begin with a run that keeps three checkpoints of its way."""

    def work(recorder: RunRecorder, loop: ToyLoop) -> None:
        while recorder.step < 3:
            before = recorder.step
            attempt(recorder, loop)
            if recorder.step > before:
                save(recorder, loop, "interval")

    nothing(place)
    session(place / "run", OS, work)


def parent_run(place: Path) -> None:
    """Begin with a run whose checkpoint another one is to start from."""

    def work(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        attempt(recorder, loop)
        save(recorder, loop, "interval")

    nothing(place)
    session(place / "other", OS, work)


# What the commands do.


def start(place: Path, fs: Any) -> None:
    """Start a run's first session."""
    fs.watch()
    session(place / "run", fs, _started(fs, place))


def start_again(place: Path, fs: Any) -> None:
    """Start a session that quarantines a torn tail, supersedes work and amends the recipe."""
    fs.watch()
    session(place / "run", fs, _started(fs, place), settings=RAISED)


def start_branch(place: Path, fs: Any) -> None:
    """Start a run at another run's checkpoint."""
    fs.watch()
    _branch(place, fs, _started(fs, place))


def _branch(place: Path, fs: FileSystem, body: Callable[[RunRecorder, ToyLoop], None]) -> None:
    parent = read_checkpoint(place / "other" / "checkpoints" / "step-00000002-s01")

    def begin_at_parent(recorder: RunRecorder, loop: ToyLoop) -> None:
        if recorder.has_sessions and recorder.latest_checkpoint() is not None:
            begin(recorder, loop, start="auto")
            return
        loop.restore(parent)
        start = "auto" if recorder.has_sessions else "branch"
        recorder.start(plan_of(loop, start=start, parent=parent, mode="continue"), capture=loop.capture)

    session(place / "run", fs, body, begin=begin_at_parent)


def _finish_branch(place: Path, fs: FileSystem = OS) -> None:
    _branch(place, fs, train)


def rewrite_index(place: Path, fs: Any) -> None:
    """Replace run.json at the start of a second session."""
    fs.watch(only=lambda path: RUN in Path(path).name)
    session(place / "run", fs, _started(fs, place), settings=RAISED)


def _started(fs: Any, place: Path) -> Callable[[RunRecorder, ToyLoop], None]:
    def body(_recorder: RunRecorder, _loop: ToyLoop) -> None:
        fs.promise(place / "run" / RUN)
        fs.unwatch()

    return body


def append(place: Path, fs: Any) -> None:
    """Append events that are synced and events that are not."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        fs.watch()
        for _ in range(3):
            attempt(recorder, loop)
        recorder.note("half way")
        evaluate(recorder, loop, complete=False)
        attempt(recorder, loop)
        fs.unwatch()

    session(place / "run", fs, body)


def commit(place: Path, fs: Any) -> None:
    """Commit a checkpoint."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        attempt(recorder, loop)
        fs.watch()
        save(recorder, loop, "interval")
        fs.promise(place / "run" / "checkpoints" / "step-00000002-s01")
        fs.unwatch()
        attempt(recorder, loop)

    session(place / "run", fs, body)


def prune(place: Path, fs: Any) -> None:
    """Remove the checkpoints that retention has no use for."""

    def body(recorder: RunRecorder, _loop: ToyLoop) -> None:
        fs.watch()
        recorder.prune(keep_last=1)
        fs.unwatch()

    session(place / "run", fs, body)


def export(place: Path, fs: Any) -> None:
    """Export weights."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        fs.watch()
        with recorder.export() as folder:
            loop.save(folder, recorder.tensor_metadata())
        fs.promise(place / "run" / "exports" / "step-00000001-s01")
        fs.unwatch()

    session(place / "run", fs, body)


def keep_evaluation(place: Path, fs: Any) -> None:
    """Keep an evaluation of the final checkpoint."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        while recorder.step < SETTINGS.target_step:
            attempt(recorder, loop)
        save(recorder, loop, "final")
        fs.watch()
        evaluate(recorder, loop, complete=True)
        fs.promise(place / "run" / "evaluations" / "validation-step-00000004-s01.json")
        fs.unwatch()

    session(place / "run", fs, body)


def end(place: Path, fs: Any) -> None:
    """End a session that still has a window to write, and let go of the run."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        fs.watch()
        recorder.end()

    session(place / "run", fs, body, settings=dataclasses.replace(SETTINGS, interval=3))
    fs.unwatch()


def _finish_sparsely(place: Path, fs: FileSystem = OS) -> None:
    session(place / "run", fs, train, settings=dataclasses.replace(SETTINGS, interval=3))


def keep_verdict(place: Path, fs: Any) -> None:
    """Write a verdict over an older one."""
    verdict = reconcile(place / "run", rehash=True)
    fs.watch()
    with diverted(fs):
        write_verdict(place / "run", verdict)
    fs.promise(place / "run" / "verdict.json")
    fs.unwatch()


def waive(place: Path, fs: Any) -> None:
    """Add a waiver to those that are there."""
    fs.watch()
    _waive(place, fs)
    fs.promise(place / "run" / WAIVERS)
    fs.unwatch()


def _waive(place: Path, fs: FileSystem) -> None:
    add_waiver(place / "run", _waiver("LG604"), fs=fs)


def _waived_run(place: Path) -> None:
    finished_run(place)
    add_waiver(place / "run", _waiver("LG605"))


def _waiver(rule: str) -> Waiver:
    return Waiver(
        rule=rule, where=LOG, reason="a test", name="somebody", expires="2999-01-01T00:00:00.000000Z"
    )


def keep_report(place: Path, fs: Any) -> None:
    """Write a report over an older one."""
    fs.watch()
    write_report(place / "reports" / "report.html", NEWER_REPORT, fs=fs)
    fs.promise(place / "reports" / "report.html")
    fs.unwatch()


def _keep_report_again(place: Path, fs: FileSystem) -> None:
    write_report(place / "reports" / "report.html", NEWER_REPORT, fs=fs)


def _older_report(place: Path) -> None:
    (place / "reports").mkdir(parents=True, exist_ok=True)
    (place / "reports" / "report.html").write_text(OLDER_REPORT, encoding="utf-8")


def seal(place: Path, fs: Any) -> None:
    """Seal a run that reached its target."""
    verdict = reconcile(place / "run", rehash=True)
    fs.watch()
    seal_run(place / "run", verdict, fs=fs)
    fs.promise(place / "run" / SEAL)
    fs.unwatch()


def attest(place: Path, fs: Any) -> None:
    """Attest a sealed run."""
    fs.watch()
    _attest_again(place, fs)
    fs.promise(place / "work" / "run.attestation.json")
    fs.unwatch()


def _attest_again(place: Path, fs: FileSystem) -> None:
    attest_run(place / "work" / "run", fs=fs)


def _sealed_run(place: Path) -> None:
    nothing(place)
    finished_run(place / "work")
    seal_run(place / "work" / "run", reconcile(place / "work" / "run", rehash=True))


def _seal_again(place: Path, fs: FileSystem) -> None:
    if (place / "run" / SEAL).exists():
        return
    repair_run(place / "run", apply=True, fs=fs)
    seal_run(place / "run", reconcile(place / "run", rehash=True), fs=fs)


def measure_apart(place: Path, fs: Any) -> None:
    """Keep a measurement that no session made."""
    fs.watch()
    _measure_apart(place, fs)
    fs.unwatch()


def _measure_apart(place: Path, fs: FileSystem) -> None:
    checkpoint = read_checkpoint(place / "run" / "checkpoints" / "step-00000004-s01")
    result = measurement(ToyLoop(SETTINGS), complete=True)
    store_measurement(result, of=checkpoint, environment=environment(), fs=fs)


def room(place: Path) -> None:
    """Begin with a run that keeps checkpoints, and a folder for weights."""
    kept_run(place)
    (place / "out").mkdir()


def copy_weights(place: Path, fs: Any) -> None:
    """Copy the weights of a checkpoint."""
    fs.watch()
    _copy_weights(place, fs)
    fs.promise(place / "out" / "model.safetensors")
    fs.unwatch()


def _copy_weights(place: Path, fs: FileSystem) -> None:
    if not (place / "out" / "model.safetensors").exists():
        export_checkpoint(_exported(place), place / "out" / "model.safetensors", fs=fs)


def _exported(place: Path) -> Path:
    return place / "run" / "checkpoints" / "step-00000002-s01"


def _weights_copied(place: Path, _control: Path) -> list[str]:
    same = (place / "out" / "model.safetensors").read_bytes() == (
        _exported(place) / "model.safetensors"
    ).read_bytes()
    return [] if same else ["other weights"]


def damaged_lightly(place: Path) -> None:
    """Begin with a run that has everything that a repair puts right."""

    def work(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        recorder.abandon()

    interrupted_run(place)
    index = (place / "run" / RUN).read_bytes()
    session(place / "run", OS, work)
    (place / "run" / RUN).write_bytes(index)
    with (place / "run" / LOG).open("ab") as log:
        log.write(b'{"event":"note","seq":')
    (place / "run" / ".run.json.tmp-0123456789abcdef").write_bytes(b"half")
    folder = place / "run" / "checkpoints" / ".step-00000004-s01.tmp-0123456789abcdef"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"half")


def repair(place: Path, fs: Any) -> None:
    """Repair a run."""
    fs.watch()
    repair_run(place / "run", apply=True, fs=fs)
    fs.unwatch()


def _repair_again(place: Path, fs: FileSystem) -> None:
    repair_run(place / "run", apply=True, fs=fs)


def _repaired(place: Path, _control: Path) -> list[str]:
    left = repair_run(place / "run").outcome
    finish_run(place)
    return [*check_passed(place / "run"), *([] if left == "clean" else [f"after the repair it is {left}"])]


def look(place: Path, fs: Any) -> None:
    """Let the doctor try a folder; its many replacements of one file are watched no more than once."""
    fs.watch(only=lambda path: "/rename" not in path)
    diagnose(place / "run", fs=fs)
    fs.unwatch()


def _look_again(place: Path, fs: FileSystem) -> None:
    diagnose(place / "run", fs=fs)


def _keep_verdict_again(place: Path, fs: FileSystem) -> None:
    verdict = reconcile(place / "run", rehash=True)
    with diverted(fs):
        write_verdict(place / "run", verdict)


def corpus(place: Path) -> None:
    """Begin with a source of a few documents, and with what two killed preparations left."""
    nothing(place)
    write_jsonl(place / "corpus.jsonl", texts(6))
    for digits in ("0123456789abcdef", "fedcba9876543210"):
        left = place / "work" / f".data.tmp-{digits}"
        left.mkdir(parents=True)
        (left / "train-00000.npy").write_bytes(b"half")


def prepare_dataset(place: Path, fs: Any) -> None:
    """Prepare a dataset."""
    fs.watch()
    _prepare(place, fs)
    fs.promise(place / "work" / "data")
    fs.unwatch()


def _prepare(place: Path, fs: FileSystem) -> None:
    config = configure(place / "corpus.jsonl", tokenizer__vocabulary=258, shard_tokens=1_000)
    prepare(config, output=place / "work" / "data", fs=fs)


def _passed(place: Path, _control: Path) -> list[str]:
    return check_passed(place / "run")


def _run_scenario(
    name: str, set_up: Callable[[Path], None], act: Callable[[Path, Any], None], **other: Any
) -> Scenario:
    recover = other.get("recover", finish_run)
    return Scenario(name, "run", set_up, act, check_run, recover, _passed)


SCENARIOS: Final = (
    _run_scenario("session start", nothing, start),
    _run_scenario("session start, resumed", interrupted_run, start_again, recover=finish_raised_run),
    _run_scenario("session start, branch", parent_run, start_branch, recover=_finish_branch),
    _run_scenario("run.json", interrupted_run, rewrite_index, recover=finish_raised_run),
    _run_scenario("append", nothing, append),
    _run_scenario("checkpoint", nothing, commit),
    _run_scenario("retention", kept_run, prune),
    _run_scenario("export", nothing, export),
    _run_scenario("evaluation file", nothing, keep_evaluation),
    _run_scenario("session end", nothing, end, recover=_finish_sparsely),
    _run_scenario("verdict", finished_run, keep_verdict, recover=_keep_verdict_again),
    _run_scenario("waiver", _waived_run, waive, recover=_waive),
    Scenario(
        "report",
        "reports",
        _older_report,
        keep_report,
        check_report,
        _keep_report_again,
        check_newer_report,
    ),
    Scenario("lock", "locks", older_lock, keep_locks, check_locks, keep_locks_again, check_locks_done),
    Scenario("seal", "run", finished_run, seal, check_run, _seal_again, check_sealed, most=120),
    Scenario(
        "attestation", "work", _sealed_run, attest, check_attestation, _attest_again, check_attested, most=60
    ),
    Scenario(
        "training",
        "run",
        data_beside,
        train_to_a_checkpoint,
        check_run,
        finish_training,
        trained,
        most=60,
    ),
    _run_scenario("separate evaluation", finished_run, measure_apart, recover=_measure_apart),
    Scenario("weights", "out", room, copy_weights, check_weights, _copy_weights, _weights_copied),
    Scenario("repair", "run", damaged_lightly, repair, check_run, _repair_again, _repaired),
    Scenario("doctor", "run", finished_run, look, check_run, _look_again, _passed, reports=True, most=60),
    Scenario("dataset", "work", corpus, prepare_dataset, check_dataset, _prepare, check_same_dataset),
    Scenario("pilot stage", "pilot", pilot_folder, record_pilot, check_stage, rehearse, check_stage_done),
)
"""The registry: every command that writes."""
SCENARIO: Final = {scenario.name: scenario for scenario in SCENARIOS}
