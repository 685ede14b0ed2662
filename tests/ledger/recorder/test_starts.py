"""What may start in a folder, and what is refused before anything is written."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
from pathlib import Path

import pytest

from ledger.checkpoints import read_checkpoint
from ledger.errors import LockedError, RefusedError, UsageError, VerificationError
from ledger.recorder import RunRecorder
from ledger.records.events import SessionStart
from ledger.records.parts import DataIdentities, Position
from tests.support.reading import events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import DATA_SHA256, ToyLoop, ToySettings, begin, plan_of, run_toy

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=4, checkpoint_interval=2)


def snapshot(folder: Path) -> dict[str, str]:
    """Return the digest of every file of a run but the lock, which every writer rewrites."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.lock"
    }


def start(run_dir, settings=SETTINGS, *, start="resume", **changes) -> None:
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, ToyLoop(settings), start=start, **changes)


@pytest.fixture
def finished(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    return run_dir


@pytest.fixture
def damaged(unaudited_dir):
    """Return a finished run that the test will damage."""
    run_toy(unaudited_dir, SETTINGS, fs=QUICK)
    return unaudited_dir


def _start_with(recorder, loop, **changes) -> None:
    recorder.start(plan_of(loop, **changes), capture=loop.capture)


def refuse(run_dir, error, match, **how) -> str:
    """Expect a refusal that writes nothing."""
    before = snapshot(run_dir)
    with pytest.raises(error, match=match) as caught:
        start(run_dir, **how)
    assert snapshot(run_dir) == before
    return str(caught.value)


def test_a_fresh_start_in_a_folder_with_a_run_is_refused(finished):
    refuse(finished, UsageError, "already holds a run with 1 session", start="fresh")


@pytest.mark.parametrize("kind", ["resume", "auto", "restart", "branch"])
def test_a_run_without_sessions_starts_fresh_only(run_dir, kind):
    with pytest.raises(UsageError, match="expected 'fresh'"):
        start(run_dir, start=kind)


def test_an_identity_change_is_refused_with_every_field(finished):
    changed = dataclasses.replace(SETTINGS, learning_rate=0.5, clip_norm=None, interval=3)
    message = refuse(finished, RefusedError, r"2 setting\(s\)", settings=changed)
    assert "optimizer.learning_rate: 0.01 -> 0.5" in message
    assert "optimizer.clip_norm: 1 -> null" in message
    assert "logging.interval" not in message


def test_a_lowered_target_is_refused(finished):
    refuse(finished, RefusedError, "from 4 to 3", settings=dataclasses.replace(SETTINGS, target_step=3))


def test_a_raised_target_cannot_be_lowered_again_from_an_older_checkpoint(finished):
    run_toy(finished, dataclasses.replace(SETTINGS, target_step=6), start="resume", fs=QUICK)
    refuse(
        finished,
        RefusedError,
        "from 6 to 4",
        named=finished / "checkpoints" / "step-00000004-s01",
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data", DataIdentities(train="0" * 64, validation=DATA_SHA256)),
        ("data", DataIdentities(train=DATA_SHA256, validation=None)),
        ("data_parallel", 2),
        ("tokens_per_microbatch", 16),
    ],
)
def test_other_data_or_another_geometry_is_refused(finished, field, value):
    refuse(finished, RefusedError, "other data or another geometry", **{field: value})


def test_another_accumulation_is_refused(finished):
    changed = dataclasses.replace(SETTINGS, accumulation=3)
    refuse(finished, RefusedError, "accumulation: 2 -> 3", settings=changed)


@pytest.mark.parametrize(
    ("part", "attribute", "value"),
    [
        ("model", "weight", 0.5),
        ("rng", "draws", 99),
        ("cursor", "position", Position(0, 8)),
    ],
)
def test_a_live_state_that_was_not_restored_is_refused_by_name(finished, part, attribute, value):
    before = snapshot(finished)
    with RunRecorder(finished, fs=QUICK) as recorder:
        loop = ToyLoop(SETTINGS)
        parent = recorder.latest_checkpoint()
        assert parent is not None
        loop.restore(parent)
        setattr(loop, attribute, value)
        with pytest.raises(VerificationError, match=part):
            _start_with(recorder, loop, start="resume", parent=parent)
    assert snapshot(finished) == before


def test_data_drawn_before_a_start_without_checkpoint_is_refused(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(SETTINGS)
        loop.draw()
        with pytest.raises(UsageError, match="data was drawn before"):
            begin(recorder, loop)


def test_a_damaged_trainer_state_is_refused(damaged):
    path = damaged / "checkpoints" / "step-00000004-s01" / "trainer.json"
    path.write_bytes(path.read_bytes().replace(b'"draws":8', b'"draws":9'))
    refuse(damaged, VerificationError, "is not the file that manifest.json lists")


def test_a_resume_needs_a_checkpoint_and_auto_does_without(run_dir):
    settings = dataclasses.replace(SETTINGS, policy="none")
    run_toy(run_dir, settings, fs=QUICK)
    refuse(run_dir, UsageError, "a resume needs a checkpoint", settings=settings)
    start(run_dir, settings, start="auto")
    assert events_of(run_dir, SessionStart)[-1].parent is None


def test_auto_does_not_pass_over_a_checkpoint(finished):
    with RunRecorder(finished, fs=QUICK) as recorder, pytest.raises(UsageError, match="holds no checkpoint"):
        _start_with(recorder, ToyLoop(SETTINGS), start="auto", parent=None)


def test_auto_takes_no_older_checkpoint(finished):
    older = "checkpoints/step-00000002-s01"
    refuse(finished, UsageError, "latest checkpoint, not", start="auto", named=finished / older)


def test_a_restart_with_a_checkpoint_is_refused(finished):
    named = finished / "checkpoints" / "step-00000004-s01"
    refuse(finished, UsageError, "takes no checkpoint", start="restart", named=named)


def test_a_checkpoint_of_another_run_is_refused(finished, tmp_path):
    other = tmp_path / "other"
    run_toy(other, SETTINGS, fs=QUICK)
    folder = other / "checkpoints" / "step-00000004-s01"
    with RunRecorder(finished, fs=QUICK) as recorder:
        with pytest.raises(UsageError, match="not a complete checkpoint of this run"):
            recorder.checkpoint_named(folder)
        loop = ToyLoop(SETTINGS)
        foreign = read_checkpoint(folder)
        loop.restore(foreign)
        with pytest.raises(UsageError, match="is a checkpoint of run"):
            _start_with(recorder, loop, start="resume", parent=foreign)


def test_a_copied_checkpoint_outside_the_run_is_refused(finished, tmp_path):
    copy = tmp_path / "step-00000004-s01"
    shutil.copytree(finished / "checkpoints" / copy.name, copy)
    with RunRecorder(finished, fs=QUICK) as recorder:
        loop = ToyLoop(SETTINGS)
        foreign = read_checkpoint(copy)
        loop.restore(foreign)
        with pytest.raises(UsageError, match="no checkpoint that this recorder found"):
            _start_with(recorder, loop, start="resume", parent=foreign)


def test_a_second_writer_is_refused_with_the_holder(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, ToyLoop(SETTINGS))
        with pytest.raises(LockedError, match="another writer holds this run: process"):
            RunRecorder(run_dir, fs=QUICK).__enter__()
    start(run_dir, start="auto")


def test_a_foreign_folder_is_refused_and_left_as_it_was(tmp_path):
    (tmp_path / "thesis.tex").write_text("no run")
    with pytest.raises(UsageError, match=r"holds other files \(thesis.tex\) and no run"):
        start(tmp_path, start="fresh")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(UsageError, match="is not a directory"):
        start(tmp_path / "run", start="fresh")


def test_other_files_beside_a_run_keep_no_writer_out(finished):
    notes = finished / "notes.txt"
    notes.write_text("mine")
    start(finished)
    notes.unlink()  # the audit, which follows, would name it


def test_missing_folders_above_the_run_are_made(tmp_path):
    run_toy(tmp_path / "a" / "b" / "run", SETTINGS, fs=QUICK)


def test_a_sealed_run_is_closed(finished):
    (finished / "seal.json").write_text("{}")
    refuse(finished, UsageError, "is sealed")
    (finished / "seal.json").unlink()


def test_a_recipe_that_cannot_be_recorded_is_refused(run_dir):
    for broken in ({"run": {"target_step": "many"}}, {}):
        recipe = SETTINGS.recipe().model_copy(update={"config": broken, "classes": {}})
        with RunRecorder(run_dir, fs=QUICK) as recorder, pytest.raises(UsageError, match="target_step"):
            _start_with(recorder, ToyLoop(SETTINGS), recipe=recipe)


def test_a_window_that_no_line_can_hold_is_refused_at_the_start(run_dir):
    with pytest.raises(UsageError, match=r"would list 60,000 microbatches"):
        start(run_dir, ToySettings(accumulation=60, interval=1_000), start="fresh")


def test_an_edited_recipe_is_refused(damaged):
    (path,) = (damaged / "recipes").iterdir()
    path.write_bytes(path.read_bytes().replace(b"0.01", b"0.02"))
    refuse(damaged, VerificationError, r"recipes/.*expected")
