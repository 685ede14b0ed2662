from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.audit import reconcile, verify
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
