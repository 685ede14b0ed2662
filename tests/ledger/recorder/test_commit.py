"""Checkpoints: committed whole or not at all, once per step, and only between windows."""

from __future__ import annotations

import json

import pytest

from ledger.checkpoints import read_checkpoint, read_trainer_state, verify_checkpoint_files
from ledger.errors import InvalidDocumentError, UsageError
from ledger.recorder import RunRecorder
from ledger.records.events import Checkpoint, Train
from tests.support.reading import events, events_of
from tests.support.systems import FaultyFileSystem, QuickFileSystem
from tests.support.toy import ToyLoop, ToySettings, attempt, begin, consume, evaluate, run_toy, save

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=8, accumulation=2, checkpoint_interval=3)


@pytest.fixture
def recorder(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        yield recorder


@pytest.fixture
def loop(recorder):
    loop = ToyLoop(SETTINGS)
    begin(recorder, loop)
    return loop


def test_event_manifest_trainer_state_and_tensors_vouch_for_each_other(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    log = events(run_dir)
    committed = events_of(run_dir, Checkpoint)
    assert [event.step for event in committed] == [3, 6, 8]
    for event in committed:
        found = read_checkpoint(run_dir / event.path)
        assert found.manifest_sha256 == event.manifest_sha256
        assert found.manifest.counters == event.at.counters
        assert found.manifest.log.seq == event.at.seq
        assert found.manifest.state == event.state
        verify_checkpoint_files(found)
        trainer = read_trainer_state(found)
        train = log[event.at.seq]
        assert isinstance(train, Train)
        assert (trainer.cursor, trainer.data_chain) == (train.cursor, train.data_chain)
        assert event.bytes == sum(path.stat().st_size for path in (run_dir / event.path).iterdir()) - (
            (run_dir / event.path / "manifest.json").stat().st_size
        )


def test_the_log_is_on_disk_before_a_checkpoint_takes_its_name(run_dir):
    fs = FaultyFileSystem()
    run_toy(run_dir, SETTINGS, fs=fs)
    renames = [index for index, (operation, name) in enumerate(fs.done) if name.startswith("step-")]
    assert len(renames) >= 3
    for index in renames:
        log = [operation for operation, name in fs.done[:index] if name == "metrics.jsonl"]
        assert "write" not in log[len(log) - log[::-1].index("fdatasync") :]


def test_a_second_one_at_the_same_step_is_refused(recorder, loop):
    attempt(recorder, loop)
    save(recorder, loop, "interval")
    with (
        pytest.raises(UsageError, match="holds a checkpoint at step 1 already"),
        recorder.checkpoint("final"),
    ):
        pass


def test_a_skip_does_not_make_room_for_a_second_one(recorder, loop):
    attempt(recorder, loop)
    save(recorder, loop, "interval")
    consume(recorder, loop)
    consume(recorder, loop)
    recorder.skipped("guard")
    assert recorder.checkpoint_here is not None
    with pytest.raises(UsageError, match="already"), recorder.checkpoint("signal"):
        pass


def test_inside_an_accumulation_window_it_is_refused(recorder, loop):
    consume(recorder, loop)
    with (
        pytest.raises(UsageError, match="after 1 microbatches of a window"),
        recorder.checkpoint("interval"),
    ):
        pass
    consume(recorder, loop)
    recorder.skipped("guard")


def test_an_exception_in_the_block_leaves_no_checkpoint_and_no_event(run_dir, recorder, loop):
    attempt(recorder, loop)
    with pytest.raises(RuntimeError, match="out of memory"):
        _commit(recorder, _save_and_fail)
    assert list((run_dir / "checkpoints").iterdir()) == []
    assert recorder.checkpoint_here is None
    save(recorder, loop, "interval")
    assert [event.step for event in events_of(run_dir, Checkpoint)] == [1]


def _commit(recorder, write) -> None:
    with recorder.checkpoint("interval") as folder:
        write(folder)


def _save_and_fail(folder):
    (folder / "model.safetensors").write_bytes(b"half of it")
    raise RuntimeError("out of memory")


def _write_manifest(folder):
    (folder / "manifest.json").write_text("{}")


def _write_folder(folder):
    (folder / "inner").mkdir()
    (folder / "inner" / "file").write_text("deep")


def _write_damage(folder):
    (folder / "model.safetensors").write_bytes(b"not safetensors")


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (_write_manifest, UsageError),
        (_write_folder, UsageError),
        (_write_damage, InvalidDocumentError),
    ],
)
def test_what_cannot_be_committed_is_refused(run_dir, recorder, loop, spoil, error):
    attempt(recorder, loop)
    with pytest.raises(error), recorder.checkpoint("interval") as folder:
        spoil(folder)
    assert not list((run_dir / "checkpoints").glob("step-*"))
    assert events_of(run_dir, Checkpoint) == []


def test_a_folder_that_a_checkpoint_cannot_hold_is_removed_with_the_rest(run_dir, recorder, loop):
    attempt(recorder, loop)
    with pytest.raises(UsageError, match="holds files only"):
        _commit(recorder, _write_folder)
    assert list((run_dir / "checkpoints").iterdir()) == []


def test_the_metadata_of_tensors_is_one_key_with_step_session_and_seq(recorder, loop):
    attempt(recorder, loop)
    metadata = recorder.tensor_metadata()
    assert list(metadata) == ["ledger"]
    assert json.loads(metadata["ledger"]) == {"step": 1, "session": 1, "seq": 1}


def test_the_parent_holds_its_step_until_an_update_is_made(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(SETTINGS)
        begin(recorder, loop, start="resume", named=run_dir / "checkpoints" / "step-00000006-s01")
        assert recorder.checkpoint_here is not None
        assert recorder.checkpoint_here.manifest.session == 1
        attempt(recorder, loop)
        assert recorder.checkpoint_here is None


def test_a_session_may_take_its_own_checkpoint_at_its_parents_step(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(SETTINGS)
        begin(recorder, loop, start="resume")
        with recorder.checkpoint("milestone") as folder:
            loop.save(folder, recorder.tensor_metadata())
        evaluate(recorder, loop, complete=True)
    assert events_of(run_dir, Checkpoint)[-1].path == "checkpoints/step-00000008-s02"
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        latest = recorder.latest_checkpoint()
        assert latest is not None
        assert latest.manifest.session == 2
