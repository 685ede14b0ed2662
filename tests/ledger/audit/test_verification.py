from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.audit import reconcile, verify
from ledger.errors import NewerVersionError, UnsafeError
from tests.corpus.runs.lg3_lineage import replace_tensors

FINAL = "checkpoints/step-00000006-s01"
Break = Callable[[Path], Any]


def test_a_sound_checkpoint_passes_alone_and_in_its_run(healthy_run: Callable[[str], Path], tmp_path: Path):
    shutil.copytree(healthy_run("plain") / FINAL, tmp_path / Path(FINAL).name)
    for path in (tmp_path / Path(FINAL).name, healthy_run("plain") / FINAL):
        verdict = verify(path)
        assert (verdict.verdict, verdict.findings) == ("passed", [])
        assert {"LG402", "LG404", "LG405", "LG407", "LG408"} <= set(verdict.checked)
        assert verdict.account["kind"] == "checkpoint"


def tensors(file: str, name: str, value: Any, **options: Any) -> Break:
    return lambda run: replace_tensors(run, file, {name: np.array(value)}, folder=FINAL, step=6, **options)


def flip(run: Path) -> None:
    """Change the last byte of the weights."""
    path = run / FINAL / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


WRONG: dict[str, Break] = {
    "LG404": tensors("optimizer.safetensors", "all/weight/step", np.float32(5)),
    "LG405": tensors("model.safetensors", "weight", [1.0, np.nan]),
    "LG402": flip,
}


@pytest.mark.parametrize(("rule", "damage"), WRONG.items(), ids=WRONG.keys())
def test_what_is_wrong_with_a_checkpoint_is_found_without_its_log(
    rule: str, damage: Break, copy_of: Callable[[str], Path], tmp_path: Path
):
    run = copy_of("plain")
    damage(run)
    shutil.copytree(run / FINAL, tmp_path / "alone" / Path(FINAL).name)
    for path in (run / FINAL, tmp_path / "alone" / Path(FINAL).name):
        assert {finding.rule for finding in verify(path).findings} == {rule}


def test_tensors_that_were_not_live_are_an_error_where_the_run_says_how_they_are_named(
    copy_of: Callable[[str], Path], tmp_path: Path
):
    run = copy_of("plain")
    tensors("model.safetensors", "weight", [1.0], was_live=False)(run)
    assert {finding.rule for finding in verify(run / FINAL).findings} == {"LG408"}
    shutil.copytree(run / FINAL, tmp_path / "alone" / Path(FINAL).name)
    verdict = verify(tmp_path / "alone" / Path(FINAL).name)
    assert "hashes them" in verdict.not_checked["LG408 model"]


def test_the_bytes_that_are_hashed_are_told(healthy_run: Callable[[str], Path]):
    run = healthy_run("plain")
    files = [path for path in run.glob("checkpoints/*/*") if path.name != "manifest.json"]
    told: list[int] = []
    reconcile(run, rehash=True, progress=told.append)
    assert sum(told) == sum(path.stat().st_size for path in files)
    told.clear()
    verify(run / FINAL, progress=told.append)
    assert sum(told) == sum(path.stat().st_size for path in files if FINAL in str(path))


def link(path: Path) -> None:
    """Put a link to a file in its place."""
    path.symlink_to(path.rename(path.parent.parent / "elsewhere"))


def pipe(path: Path) -> None:
    """Put a pipe in the place of a file."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("stand_in", [link, pipe])
def test_nothing_that_a_manifest_lists_is_followed_elsewhere(
    stand_in: Break, healthy_run: Callable[[str], Path], tmp_path: Path
):
    run = healthy_run("on_dataset")
    data = run.with_name("on_dataset-data")
    listed = [path for path in data.iterdir() if path.name != "preparation.json"]
    listed += next((run / "checkpoints").iterdir()).iterdir()
    for number, file in enumerate(sorted(listed)):
        copy = tmp_path / f"{stand_in.__name__}-{number}" / file.parent.name
        shutil.copytree(file.parent, copy)
        stand_in(copy / file.name)
        with pytest.raises(UnsafeError, match=f"{file.name}: a (symbolic link|named pipe) stands here"):
            verify(copy)
    assert {path.name for path in listed} >= {
        "metadata.json",
        "tokenizer.json",
        "model.safetensors",
        "manifest.json",
    }


def test_an_array_of_a_newer_form_is_refused_as_such(copy_of: Callable[[str], Path]):
    shard = copy_of("on_dataset").with_name("on_dataset-data") / "train-00000.npy"
    shard.write_bytes(shard.read_bytes().replace(b"NUMPY\x01", b"NUMPY\x04", 1))
    with pytest.raises(NewerVersionError, match="format version 4"):
        verify(shard.parent)
