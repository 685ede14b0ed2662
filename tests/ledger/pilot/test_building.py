"""A stage is built once, recorded when it is finished, waited for, and never built over damage."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.errors import StorageError
from ledger.pilot import Moment, StageOutcome
from ledger.pilot.fingerprint import Fingerprint
from ledger.pilot.gates import GateBound
from ledger.pilot.metrics import Evidence
from ledger.pilot.runner import StageFailedError, run_stage, write_pilot
from ledger.pilot.stage import Found, Place, Stage
from ledger.records.pilot import PilotRecord, StageFile
from ledger.storage.digests import hash_file
from ledger.storage.documents import read_document
from ledger.storage.lock import RunLock
from tests.support.faults import Snapshot
from tests.support.faults_pilot import LONG_RUN

PATIENCE_SECONDS = 20
FINGERPRINT = Fingerprint(stage="trial", inputs={"seed": 1}, parts={"loom": 1})


class Weaving(Stage):
    """A stage whose work is one file of a few bytes."""

    def __init__(
        self, root: Path, *, said: list[Moment], before: Callable[[], object] = lambda: None, least: float = 3
    ) -> None:
        place = Place(root=root, report=said.append)
        super().__init__(FINGERPRINT, place, asked={"updates": GateBound(min=least)})
        self._before = before
        self.builds = 0
        self.inspections = 0

    def build(self) -> None:
        self.builds += 1
        self._before()
        (self.folder / "cloth").write_bytes(b"whole")

    def inspect(self) -> Found:
        self.inspections += 1
        cloth = self.folder / "cloth"
        file = StageFile(path="cloth", sha256=hash_file(cloth).sha256)
        return Found(evidence=Evidence(others={"updates": cloth.stat().st_size}), files=[file])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pilot").mkdir()
    return tmp_path / "pilot"


def weaving(root: Path, **options) -> Weaving:
    return Weaving(root, said=[], **options)


def test_a_stage_is_built_once_and_then_only_looked_up(root: Path):
    first, second = weaving(root), weaving(root)
    assert not run_stage(first).reused
    before = Snapshot.of(root)
    assert run_stage(second).reused
    assert (second.builds, second.inspections) == (0, 0)
    assert Snapshot.of(root) == before


def test_a_rehash_reads_what_did_not_change(root: Path):
    run_stage(weaving(root))
    again = weaving(root)
    assert run_stage(again, is_rehashing=True).reused
    assert (again.builds, again.inspections) == (0, 1)


def test_a_file_that_was_touched_is_read_again_and_then_trusted(root: Path):
    stage = weaving(root)
    run_stage(stage)
    os.utime(stage.folder / "cloth", (1, 1))
    again, third = weaving(root), weaving(root)
    assert run_stage(again).reused
    assert (again.builds, again.inspections) == (0, 1)
    assert run_stage(third).reused
    assert third.inspections == 0


def test_damage_that_keeps_size_and_times_is_found_too(root: Path):
    stage = weaving(root)
    run_stage(stage)
    cloth = stage.folder / "cloth"
    times = cloth.stat()
    cloth.write_bytes(b"whale")
    os.utime(cloth, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = weaving(root)
    with pytest.raises(StageFailedError, match=f"nothing was rebuilt; .* remove {stage.folder}"):
        run_stage(again)
    assert again.builds == 0
    assert cloth.read_bytes() == b"whale"


def test_a_missing_output_is_damage_and_not_rebuilt(root: Path):
    stage = weaving(root)
    run_stage(stage)
    (stage.folder / "cloth").unlink()
    again = weaving(root)
    with pytest.raises(StageFailedError, match=f"remove {stage.folder}"):
        run_stage(again)
    assert again.builds == 0


def test_the_record_of_another_stage_is_refused(root: Path):
    stage = weaving(root)
    run_stage(stage)
    path = stage.folder / "stage.json"
    path.write_bytes(path.read_bytes().replace(FINGERPRINT.sha256.encode(), b"0" * 64))
    with pytest.raises(StageFailedError, match="is the record of another stage"):
        run_stage(weaving(root))


@pytest.mark.parametrize(
    ("written", "instead", "place"),
    [
        ('"passed":false,"reason":', '"passed":true,"reason":', "its gates"),
        ('"measured":5', '"measured":9', "its gates"),
        ('"passed":false,"runs"', '"passed":true,"runs"', "its verdict"),
        ('{"seed":1}', '{"seed":2}', "its inputs and parts"),
    ],
)
def test_a_failed_stage_cannot_be_made_a_passed_one_by_editing_its_record(
    root: Path, written: str, instead: str, place: str
):
    stage = weaving(root, least=9)
    assert not run_stage(stage).passed
    record = stage.folder / "stage.json"
    text = record.read_text(encoding="utf-8")
    assert text.count(written) == 1
    record.write_text(text.replace(written, instead), encoding="utf-8")
    for _ in range(2):  # and again: what was refused is not trusted the second time
        with pytest.raises(StageFailedError, match=place):
            run_stage(weaving(root, least=9))


def test_a_system_that_refuses_is_no_reason_to_remove_what_was_built(root: Path):
    run_stage(weaving(root))

    def refuse() -> Found:
        raise StorageError("could not open", path=root)

    stage = weaving(root)
    stage.inspect = refuse  # type: ignore[method-assign]
    with pytest.raises(StageFailedError, match="once the system allows it") as failed:
        run_stage(stage, is_rehashing=True)
    assert failed.value.exit_code == 4
    assert "remove" not in str(failed.value)


def test_a_later_stage_whose_record_is_damaged_does_not_keep_an_earlier_one_from_being_noted(root: Path):
    run_stage(weaving(root))
    later = Fingerprint(stage="later", inputs={}, parts={})
    (root / later.folder).mkdir()
    (root / later.folder / "stage.json").write_bytes(b"x")
    plan: Any = SimpleNamespace(
        root=root,
        names=["trial", "later"],
        trained=["trial", "later"],
        config=SimpleNamespace(name="pilot"),
        resolution=SimpleNamespace(long_run=LONG_RUN),
    )
    write_pilot(plan, {"trial": FINGERPRINT, "later": later})
    record = read_document(root / "pilot.json", PilotRecord)
    assert [stage.passed for stage in record.stages] == [True, None]
    assert not record.passed


def test_what_was_not_finished_is_built_on(root: Path):
    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(weaving(root, before=die))
    stage = weaving(root)
    assert not (stage.folder / "stage.json").exists()
    assert not run_stage(stage).reused
    assert stage.builds == 1


def test_another_bound_is_judged_without_building(root: Path):
    assert run_stage(weaving(root)).passed
    strict, lenient = weaving(root, least=6), weaving(root)
    outcome = run_stage(strict)
    assert (strict.builds, outcome.passed, outcome.reused) == (0, False, True)
    assert outcome.notes[0].startswith("LG901 error: trial: updates is 5, asked >= 6")
    assert run_stage(lenient).passed


def test_two_that_ask_for_one_stage_build_it_once_and_the_second_says_for_whom_it_waits(root: Path):
    is_building, may_finish, said = threading.Event(), threading.Event(), list[Moment]()

    def wait() -> None:
        is_building.set()
        assert may_finish.wait(PATIENCE_SECONDS)

    first, second = weaving(root, before=wait), Weaving(root, said=said)
    outcomes: dict[str, StageOutcome] = {}
    threads = [
        threading.Thread(target=lambda: outcomes.update(first=run_stage(first))),
        threading.Thread(target=lambda: outcomes.update(second=run_stage(second))),
    ]
    threads[0].start()
    assert is_building.wait(PATIENCE_SECONDS)
    threads[1].start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not said and time.monotonic() < deadline:
        time.sleep(0.01)
    may_finish.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert (said[0].stage, said[0].phase) == ("trial", "waiting")
    assert f"process {os.getpid()}" in said[0].note
    assert (first.builds, second.builds) == (1, 0)
    assert (outcomes["first"].reused, outcomes["second"].reused) == (False, True)


def test_the_lock_of_a_dead_holder_is_free(root: Path):
    folder = weaving(root).folder
    folder.mkdir()
    child = os.fork()
    if not child:
        RunLock(folder)
        os._exit(0)
    os.waitpid(child, 0)
    said: list[Moment] = []
    assert not run_stage(Weaving(root, said=said)).reused
    assert not said


def test_without_a_bound_a_warning_says_so(root: Path):
    stage = weaving(root)
    stage._asked = {}
    outcome = run_stage(stage)
    assert outcome.passed
    assert outcome.notes == ["LG902 warning: trial: nothing is asked of what was measured"]
