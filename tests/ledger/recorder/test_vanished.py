"""A checkpoint that the log vouches for and the disk no longer holds is never gone around silently."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.errors import EvidenceMissingError, VerificationError
from ledger.maintain import repair_run
from ledger.recorder import RunRecorder
from ledger.records.events import SessionStart
from tests.support.reading import events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import Killed, ToyLoop, ToySettings, plan_of, run_toy
from tests.support.trees import snapshot

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=8, checkpoint_interval=2)
LATEST, EARLIER = "step-00000006-s01", "step-00000004-s01"

Loss = Callable[[Path], object]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run that was killed behind its third checkpoint."""

    def die(recorder: RunRecorder, _moment: str) -> None:
        if recorder.step == 7:
            raise Killed

    with pytest.raises(Killed):
        run_toy(tmp_path / "run", SETTINGS, before=die, fs=QUICK)
    return tmp_path / "run"


def _lose_all(folder: Path) -> None:
    shutil.rmtree(folder.parent)


def _lose_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _rename(folder: Path) -> None:
    folder.rename(folder.with_name("kept-aside"))


@pytest.mark.parametrize("lose", [shutil.rmtree, _lose_manifest, _rename, _lose_all])
def test_going_on_is_refused_by_name_before_anything_is_written(run: Path, lose: Loss):
    lose(run / "checkpoints" / LATEST)
    before = snapshot(run, without=frozenset({"run.lock", "."}))
    with pytest.raises(EvidenceMissingError, match=LATEST) as caught:
        run_toy(run, SETTINGS, start="auto", fs=QUICK)
    assert caught.value.exit_code == 3
    assert all(way in str(caught.value) for way in ("restore it", "--resume PATH", "--restart"))
    assert snapshot(run, without=frozenset({"run.lock", "."})) == before


def test_a_loop_that_asks_for_no_checkpoint_is_refused_too(run: Path):
    shutil.rmtree(run / "checkpoints")
    loop = ToyLoop(SETTINGS)
    with RunRecorder(run, fs=QUICK) as recorder, pytest.raises(EvidenceMissingError, match=LATEST):
        recorder.start(plan_of(loop, start="auto"), capture=loop.capture)


def test_an_orphan_that_lost_its_manifest_is_refused_as_well(tmp_path: Path):
    run = tmp_path / "run"
    _until_an_orphan(run)
    folder = run / "checkpoints" / EARLIER
    _lose_manifest(folder)
    with pytest.raises(EvidenceMissingError, match=f"{EARLIER}: holds no manifest.json"):
        run_toy(run, SETTINGS, start="auto", fs=QUICK)
    shutil.rmtree(folder)  # of what has neither event nor folder nobody knows
    run_toy(run, SETTINGS, start="auto", fs=QUICK)


def _until_an_orphan(run: Path) -> None:
    """Train until a second checkpoint is complete, and cut off the line that speaks of it."""

    def die(recorder: RunRecorder, moment: str) -> None:
        if recorder.step == 4 and recorder.checkpoint_here is not None and moment != "checkpoint":
            raise Killed

    with pytest.raises(Killed):
        run_toy(run, SETTINGS, before=die, fs=QUICK)
    lines = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    kept = max(number for number, line in enumerate(lines) if json.loads(line)["event"] == "checkpoint")
    (run / "metrics.jsonl").write_bytes(b"".join(lines[:kept]))


def test_a_manifest_other_than_its_event_names_is_refused(run: Path):
    path = run / "checkpoints" / LATEST / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"interval"', b'"milestone"'))
    for how in ({"start": "auto"}, {"start": "resume", "checkpoint": path.parent}):
        with pytest.raises(VerificationError, match="not the manifest that the checkpoint event names"):
            run_toy(run, SETTINGS, fs=QUICK, **how)


def test_an_earlier_one_that_vanished_does_not_matter(run: Path):
    shutil.rmtree(run / "checkpoints" / EARLIER)
    run_toy(run, SETTINGS, start="auto", fs=QUICK)
    parent = events_of(run, SessionStart)[-1].parent
    assert parent is not None
    assert parent.checkpoint.endswith(LATEST)


def test_a_checkpoint_named_on_purpose_and_a_restart_go_on(run: Path, tmp_path: Path):
    shutil.rmtree(run / "checkpoints" / LATEST)
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    run_toy(run, SETTINGS, start="resume", checkpoint=run / "checkpoints" / EARLIER, fs=QUICK)
    run_toy(copy, SETTINGS, start="restart", fs=QUICK)
    for folder in (run, copy):
        run_toy(folder, ToySettings(target_step=10, checkpoint_interval=2), start="auto", fs=QUICK)


@pytest.mark.parametrize("lose", [shutil.rmtree, _lose_manifest, _lose_all])
def test_no_repair_undoes_it(run: Path, lose: Loss):
    lose(run / "checkpoints" / LATEST)
    (run / "run.json").unlink()
    for apply in (False, True):
        report = repair_run(run, apply=apply, fs=QUICK)
        assert report.outcome == "refused"
        assert LATEST in (report.refusal or "")
    assert not (run / "run.json").exists()
