"""Checkpoints as they lie on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.checkpoints import (
    find_checkpoints,
    find_incomplete,
    read_checkpoint,
    read_trainer_state,
    verify_checkpoint_files,
)
from ledger.errors import EvidenceMissingError, InvalidDocumentError, UnsafeError, VerificationError
from ledger.recorder import RunRecorder
from tests.support.systems import QuickFileSystem
from tests.support.toy import ToySettings, run_toy

QUICK = QuickFileSystem()


@pytest.fixture
def run_dir(tmp_path):
    run_toy(tmp_path / "run", ToySettings(target_step=4, checkpoint_interval=2), fs=QUICK)
    return tmp_path / "run"


@pytest.fixture
def checkpoint(run_dir):
    return read_checkpoint(run_dir / "checkpoints" / "step-00000004-s01")


def test_a_run_without_any_has_none(tmp_path):
    assert find_checkpoints(tmp_path) == []


def test_complete_ones_are_found_by_name_and_nothing_else_is(run_dir):
    root = run_dir / "checkpoints"
    (root / "step-00000009-s01").mkdir()  # without a manifest
    (root / "latest").symlink_to("step-00000002-s01")
    (root / "step-4-s1").mkdir()
    (root / ".step-00000003-s01.tmp-0123456789abcdef").mkdir()
    assert [found.path for found in find_checkpoints(run_dir)] == [
        "checkpoints/step-00000002-s01",
        "checkpoints/step-00000004-s01",
    ]


def test_a_folder_without_a_manifest_is_no_checkpoint(run_dir):
    (run_dir / "checkpoints" / "step-00000004-s01" / "manifest.json").unlink()
    with pytest.raises(EvidenceMissingError):
        read_checkpoint(run_dir / "checkpoints" / "step-00000004-s01")


def test_a_folder_under_another_name_is_refused(run_dir):
    folder = run_dir / "checkpoints" / "step-00000004-s01"
    folder.rename(folder.with_name("step-00000004-s02"))
    with pytest.raises(InvalidDocumentError, match="the folder is named step-00000004-s02"):
        find_checkpoints(run_dir)


def test_an_intact_one_verifies(checkpoint):
    verify_checkpoint_files(checkpoint)
    assert read_trainer_state(checkpoint).counters == checkpoint.manifest.counters
    assert checkpoint.known.counters.step == 4


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "trainer.json"])
def test_a_flipped_bit_is_found_in_every_file(checkpoint, name):
    path = checkpoint.folder / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(VerificationError, match=name):
        verify_checkpoint_files(checkpoint)


@pytest.mark.parametrize("name", ["model.safetensors", "trainer.json"])
def test_an_absent_file_is_found(checkpoint, name):
    (checkpoint.folder / name).unlink()
    with pytest.raises(VerificationError, match=f"{name}: is absent"):
        verify_checkpoint_files(checkpoint)


def test_an_edited_trainer_state_is_not_read(checkpoint):
    path = checkpoint.folder / "trainer.json"
    path.write_bytes(path.read_bytes().replace(b'"draws":8', b'"draws":9'))
    with pytest.raises(VerificationError, match=r"trainer\.json: is not the file that manifest\.json lists"):
        read_trainer_state(checkpoint)


def _move_behind_a_link(path: Path, away: Path) -> None:
    path.rename(away)
    path.symlink_to(away)


@pytest.mark.parametrize(
    "linked",
    [
        "checkpoints",
        "checkpoints/step-00000004-s01",
        "checkpoints/step-00000002-s01",
        "checkpoints/step-00000004-s01/manifest.json",
        "checkpoints/step-00000004-s01/model.safetensors",
        "checkpoints/step-00000004-s01/trainer.json",
    ],
)
def test_nothing_is_ever_reached_through_a_link(run_dir, tmp_path, linked):
    _move_behind_a_link(run_dir / linked, tmp_path / "elsewhere")
    with pytest.raises(UnsafeError, match=f"{linked}: a symbolic link stands here"):
        find_checkpoints(run_dir)
    before = (run_dir / "metrics.jsonl").read_bytes()
    with pytest.raises(UnsafeError), RunRecorder(run_dir, fs=QUICK):
        pytest.fail("the run was opened")
    assert (run_dir / "metrics.jsonl").read_bytes() == before


def test_a_single_checkpoint_is_not_read_through_a_link_either(run_dir, tmp_path):
    folder = run_dir / "checkpoints" / "step-00000004-s01"
    _move_behind_a_link(folder, tmp_path / "elsewhere")
    with pytest.raises(UnsafeError):
        read_checkpoint(folder)


def test_a_file_under_a_checkpoints_name_is_refused(run_dir):
    (run_dir / "checkpoints" / "step-00000009-s01").write_text("no folder")
    with pytest.raises(UnsafeError, match="expected a folder"):
        find_checkpoints(run_dir)


def test_a_folder_that_lost_its_manifest_is_named(run_dir):
    (run_dir / "checkpoints" / "step-00000004-s01" / "manifest.json").unlink()
    assert find_incomplete(run_dir) == ["checkpoints/step-00000004-s01"]
