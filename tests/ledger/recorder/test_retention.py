"""Retention: what goes, what stays, and a process that is killed between the two."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.checkpoints import find_checkpoints
from ledger.errors import UsageError
from ledger.recorder import RunRecorder
from ledger.recorder.opening import open_run
from ledger.records.events import Pruned
from ledger.storage.filesystem import FileSystem
from ledger.storage.log_reader import read_log
from tests.support.clocks import SteppingClock
from tests.support.toy import (
    Killed,
    ToyLoop,
    ToySettings,
    attempt,
    begin,
    evaluate,
    mortal,
    record,
    run_toy,
    save,
)

SETTINGS = ToySettings(target_step=8, accumulation=1, checkpoint_interval=1, evaluate_every=None)


def steps(run: Path) -> list[tuple[int, str]]:
    return [(found.manifest.counters.step, found.manifest.kind) for found in find_checkpoints(run)]


def pruned(run: Path) -> list[tuple[str, str]]:
    events = [line.event for line in read_log(run / "metrics.jsonl")]
    return [(event.path[-8:], event.reason) for event in events if isinstance(event, Pruned)]


def advance(recorder: RunRecorder, loop: ToyLoop, *, to: int, kind: str = "interval") -> None:
    while recorder.step < to:
        attempt(recorder, loop)
        save(recorder, loop, kind)


def test_the_newest_of_the_way_stay_and_the_log_names_what_went(run_dir):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        advance(recorder, loop, to=4)
        assert recorder.prune(keep_last=2) == [
            "checkpoints/step-00000001-s01",
            "checkpoints/step-00000002-s01",
        ]
        assert recorder.prune(keep_last=2) == []

    record(run_dir, body, settings=SETTINGS)
    assert steps(run_dir) == [(3, "interval"), (4, "interval")]
    reason = "retention: not among the newest 2"
    assert pruned(run_dir) == [("0001-s01", reason), ("0002-s01", reason)]
    assert list((run_dir / "checkpoints").glob(".*")) == []


def test_milestones_and_finals_are_never_removed_nor_counted(run_dir):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        advance(recorder, loop, to=1, kind="final")
        advance(recorder, loop, to=2, kind="milestone")
        advance(recorder, loop, to=3, kind="signal")
        advance(recorder, loop, to=6)
        recorder.prune(keep_last=2)

    record(run_dir, body, settings=SETTINGS)
    assert steps(run_dir) == [(1, "final"), (2, "milestone"), (5, "interval"), (6, "interval")]


def test_the_best_by_validation_loss_stays(run_dir):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        for weight in (3.0, -1.0, 2.0, 2.5, -5.0):
            attempt(recorder, loop)
            kept, loop.weight = loop.weight, weight
            evaluate(recorder, loop, complete=False)
            loop.weight = kept
            if weight != -5.0:
                save(recorder, loop, "interval")
        recorder.prune(keep_last=1)

    record(run_dir, body, settings=SETTINGS)
    assert steps(run_dir) == [(2, "interval"), (4, "interval")]
    best = open_run(run_dir).history.best()
    assert best is not None
    assert (best.evaluation.step, best.checkpoint) == (5, None)


def test_the_parent_of_the_session_under_way_stays(run_dir):
    record(run_dir, lambda recorder, loop: advance(recorder, loop, to=2), settings=SETTINGS)

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        advance(recorder, loop, to=5)
        recorder.prune(keep_last=1)

    record(run_dir, body, settings=SETTINGS, start="resume")
    assert steps(run_dir) == [(2, "interval"), (5, "interval")]


def test_what_no_branch_leads_to_any_more_goes(run_dir):
    record(run_dir, lambda recorder, loop: advance(recorder, loop, to=4), settings=SETTINGS)
    loop = ToyLoop(SETTINGS)
    with RunRecorder(run_dir, clock=SteppingClock()) as recorder:
        begin(recorder, loop, start="resume", named=run_dir / "checkpoints" / "step-00000001-s01")
        advance(recorder, loop, to=3)
        recorder.prune(keep_last=9)
    assert steps(run_dir) == [(1, "interval"), (2, "interval"), (3, "interval")]
    assert {reason for _, reason in pruned(run_dir)} == {"retention: superseded"}


def test_a_parent_that_no_event_vouches_for_stays(run_dir):

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        advance(recorder, loop, to=1)
        attempt(recorder, loop)
        recorder._active._write_checkpoint = lambda *_, **__: (_ for _ in ()).throw(Killed)  # type: ignore[method-assign]
        save(recorder, loop, "interval")

    with pytest.raises(Killed):
        _run_mortal(run_dir, body)
    record(run_dir, lambda recorder, loop: advance(recorder, loop, to=4), settings=SETTINGS, start="resume")

    def last(recorder: RunRecorder, loop: ToyLoop) -> None:
        advance(recorder, loop, to=6)
        recorder.prune(keep_last=1)

    record(run_dir, last, settings=SETTINGS, start="resume")
    assert steps(run_dir) == [(2, "interval"), (4, "interval"), (6, "interval")]


def _run_mortal(run: Path, body) -> None:
    loop, recorder = ToyLoop(SETTINGS), RunRecorder(run, clock=SteppingClock())
    with mortal(recorder):
        begin(recorder, loop)
        body(recorder, loop)


class Dying(FileSystem):
    """Its process dies instead of renaming a checkpoint away."""

    armed = False

    def perform(self, operation, path, function, *arguments, **options):
        if self.armed and operation == "rename":
            raise Killed
        return super().perform(operation, path, function, *arguments, **options)


def test_what_a_kill_left_of_a_pruned_checkpoint_is_removed_by_the_next_start(run_dir):
    fs = Dying()
    loop, recorder = ToyLoop(SETTINGS), RunRecorder(run_dir, clock=SteppingClock(), fs=fs)

    def die_renaming() -> None:
        with mortal(recorder):
            begin(recorder, loop)
            advance(recorder, loop, to=3)
            fs.armed = True
            recorder.prune(keep_last=1)

    with pytest.raises(Killed):
        die_renaming()
    assert [step for step, _ in steps(run_dir)] == [1, 2, 3]
    assert [name for name, _ in pruned(run_dir)] == ["0001-s01"]
    with RunRecorder(run_dir) as found, pytest.raises(UsageError, match="not a complete checkpoint"):
        found.checkpoint_named(run_dir / "checkpoints" / "step-00000001-s01")
    run_toy(run_dir, SETTINGS, start="auto")
    assert 1 not in dict(steps(run_dir))


def test_a_pruned_parent_is_vouched_for_by_its_event(run_dir):
    record(run_dir, lambda recorder, loop: advance(recorder, loop, to=2), settings=SETTINGS)
    record(run_dir, lambda recorder, loop: advance(recorder, loop, to=4), settings=SETTINGS, start="resume")

    def last(recorder: RunRecorder, loop: ToyLoop) -> None:
        advance(recorder, loop, to=5)
        recorder.prune(keep_last=1)

    record(run_dir, last, settings=SETTINGS, start="resume")
    assert [step for step, _ in steps(run_dir)] == [4, 5]


def test_at_least_one_stays(run_dir):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        with pytest.raises(UsageError, match="at least 1"):
            recorder.prune(keep_last=0)
        attempt(recorder, loop)

    record(run_dir, body, settings=SETTINGS)


def test_the_recorder_knows_what_its_last_checkpoint_took(run_dir):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        assert recorder.last_checkpoint_seconds is None
        advance(recorder, loop, to=1)
        assert recorder.last_checkpoint_seconds is not None

    record(run_dir, body, settings=SETTINGS, clock=SteppingClock())
    with RunRecorder(run_dir) as recorder:
        assert recorder.last_checkpoint_seconds is not None
        assert recorder.last_checkpoint_seconds > 0
