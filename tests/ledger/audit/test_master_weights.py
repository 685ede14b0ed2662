"""LG407: the model is what its master weights round to."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ledger.audit import reconcile
from ledger.audit.master_weights import find_master_weights, master_problems
from ledger.records.documents import CheckpointFile, CheckpointManifest
from ledger.storage.digests import hash_file
from ledger.storage.safetensors import scan_tensors
from tests.corpus.runs.lg3_lineage import replace_tensors
from tests.ledger.audit.conftest import copy_of, healthy_run
from tests.support.toy import ToyLoop

__all__ = ["copy_of", "healthy_run"]
FOLDER = "checkpoints/step-00000003-s01"
EXACT = [0x3F800000, 0x3F808000, 0x3F808001, 0x3F818000, 0x7F7FFFFF, 0x80000001, 0xFFC00001]
"""Bits of float32: itself, a tie to even, above it, a tie upwards, an overflow, a subnormal, not a number."""
ROUNDED = [0x3F80, 0x3F80, 0x3F81, 0x3F82, 0x7F80, 0x8000, 0xFFC0]


def write(path: Path, name: str, dtype: str, data: bytes, *, shape: list[int]) -> CheckpointFile:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}
    header = json.dumps({name: entry}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    digest = hash_file(path)
    return CheckpointFile(bytes=digest.bytes, sha256=digest.sha256, tensors=scan_tensors(path).entries)


@pytest.fixture
def compare(tmp_path: Path, healthy_run: Callable[[str], Path]) -> Callable[..., list[str]]:
    """Return what is wrong with a model of one parameter `w` and its float32 master weights."""
    manifest = CheckpointManifest.model_validate_json(
        (healthy_run("plain") / FOLDER / "manifest.json").read_bytes()
    )

    def get(model: bytes, dtype: str, master: bytes, *, name: str = "w", count: int) -> list[str]:
        files = {
            "model.safetensors": write(tmp_path / "model.safetensors", name, dtype, model, shape=[count]),
            "optimizer.safetensors": write(
                tmp_path / "optimizer.safetensors", "all/w/master", "F32", master, shape=[count]
            ),
        }
        of = manifest.model_copy(update={"files": files})
        return [*[problem for _, _, problem in master_problems(tmp_path, of)], *find_master_weights(of).other]

    return get


def test_bfloat16_is_rounded_to_nearest_and_ties_to_even(compare: Callable[..., list[str]]):
    exact = np.array(EXACT, dtype="<u4").tobytes()
    assert compare(np.array(ROUNDED, dtype="<u2").tobytes(), "BF16", exact, count=7) == []
    for index in range(6):
        other = np.array(ROUNDED, dtype="<u2")
        other[index] ^= 1
        [problem] = compare(other.tobytes(), "BF16", exact, count=7)
        assert "1 of 7 numbers of w are not its master weights all/w/master rounded to BF16" in problem
        assert f"the first is number {index})" in problem


def test_large_tensors_are_compared_to_the_end(compare: Callable[..., list[str]]):
    exact = np.linspace(-3, 3, 300_001, dtype="<f4")
    model = exact.astype("<f2")
    assert compare(model.tobytes(), "F16", exact.tobytes(), count=exact.size) == []
    model[-1] = 0
    assert (
        "the first is number 300000)" in compare(model.tobytes(), "F16", exact.tobytes(), count=exact.size)[0]
    )


@pytest.mark.parametrize(("dtype", "name", "size"), [("F8_E4M3", "w", 1), ("F32", "v", 4)])
def test_what_cannot_be_compared_is_said_to_be_so(
    dtype: str, name: str, size: int, compare: Callable[..., list[str]]
):
    assert compare(bytes(2 * size), dtype, bytes(8), name=name, count=2) == ["all/w/master"]


def test_honest_master_weights_pass_and_are_read_only_with_rehash(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    loop = ToyLoop(updates=3)
    loop.restore_tensors(run / FOLDER)
    tensors = loop.optimizer_tensors() | {"all/weight/master": loop.model_tensors()["weight"]}
    replace_tensors(run, "optimizer.safetensors", tensors)
    quick, full = reconcile(run), reconcile(run, rehash=True)
    assert "LG407 master weights" in quick.not_checked
    assert "LG407 master weights" not in full.not_checked
    assert [quick.findings, full.findings] == [[], []]
