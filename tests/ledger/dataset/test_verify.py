"""Verification finds every changed byte and names the file; it lists everything and stops at nothing."""

from __future__ import annotations

import hashlib
import json
import os

import numpy as np
import pytest

from ledger.dataset.manifest import METADATA_NAME, read_manifest
from ledger.dataset.npy import array_bytes
from ledger.dataset.verify import check_document_ends, check_tokens, verify_dataset
from ledger.errors import InvalidDocumentError, VerificationError
from ledger.records.dataset import SplitInventory
from tests.ledger.dataset.builders import build_dataset, documents


@pytest.fixture
def dataset(tmp_path):
    return build_dataset(tmp_path / "data", splits={"train": documents(40), "validation": documents(9)[3:]})


def files(dataset) -> list[str]:
    return sorted(path.name for path in dataset.directory.iterdir() if path.name != METADATA_NAME)


def flip(path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)


def test_a_healthy_dataset_has_no_problem(dataset):
    found = verify_dataset(dataset.directory)
    assert found.problems == ()
    assert found.metadata_sha256 == dataset.metadata_sha256
    assert not list(check_tokens(dataset.directory))


def test_a_flipped_bit_is_found_in_every_file(dataset):
    for name in files(dataset):
        path = dataset.directory / name
        for offset in (0, path.stat().st_size // 2, path.stat().st_size - 1):
            flip(path, offset)
            (problem,) = verify_dataset(dataset.directory).problems
            assert problem.file == name
            assert str(path) in str(problem)
            flip(path, offset)


def test_all_damage_is_listed(dataset):
    flip(dataset.directory / "train-00000.npy", 200)
    (dataset.directory / "train-00002.npy").unlink()
    os.truncate(dataset.directory / "validation-00000.npy", 150)
    found = {problem.file for problem in verify_dataset(dataset.directory).errors}
    assert found == {"train-00000.npy", "train-00002.npy", "validation-00000.npy"}


def test_swapped_files_are_both_found(dataset):
    one, other = (dataset.directory / f"train-0000{index}.npy" for index in (0, 1))
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    assert [problem.file for problem in verify_dataset(dataset.directory).errors] == [one.name, other.name]


def test_a_file_that_nobody_listed_is_found(dataset):
    (dataset.directory / "train-00099.npy").write_bytes(b"")
    (problem,) = verify_dataset(dataset.directory).errors
    assert problem.file == "train-00099.npy"


def test_a_second_name_is_a_warning(dataset, tmp_path):
    os.link(dataset.directory / "train-00000.npy", tmp_path / "second")
    (problem,) = verify_dataset(dataset.directory).problems
    assert (problem.file, problem.severity) == ("train-00000.npy", "warning")


def test_equal_shards_are_a_warning(tmp_path):
    same = [[7] * 49 + [0]] * 2
    build_dataset(tmp_path / "data", splits={"train": same})
    (problem,) = verify_dataset(tmp_path / "data").problems
    assert (problem.file, problem.severity) == ("train-00001.npy", "warning")


def test_changed_times_and_modes_are_no_damage(dataset):
    os.utime(dataset.directory / "train-00000.npy", (0, 0))
    (dataset.directory / "train-00001.npy").chmod(0o600)
    assert verify_dataset(dataset.directory).problems == ()


def test_progress_counts_every_byte(dataset):
    counted: list[int] = []
    verify_dataset(dataset.directory, progress=counted.append, workers=1)
    assert sum(counted) == sum((dataset.directory / name).stat().st_size for name in files(dataset))


def relist(dataset, name: str, data: bytes) -> None:
    """Replace a file and its digest in the manifest: the digest alone must not be trusted for meaning."""
    (dataset.directory / name).write_bytes(data)
    path = dataset.directory / METADATA_NAME
    value = json.loads(path.read_bytes())
    sha256 = hashlib.sha256(data).hexdigest()
    for split in value["splits"].values():
        for shard in split["shards"]:
            for entry in (shard, shard["ends"]):
                if entry["file"] == name:
                    entry["sha256"] = sha256
    path.write_text(json.dumps(value))


def test_document_ends_outside_their_shard_are_found(dataset):
    ends = dataset.split("train").document_ends()
    first = read_manifest(dataset.directory).splits["train"].shards[0].documents
    moved = ends[:first].copy()
    moved[-1] = ends[first - 1] + 8
    relist(dataset, "train-00000.ends.npy", array_bytes(moved, dtype="uint64"))
    (problem,) = verify_dataset(dataset.directory).errors
    assert "ends.npy" in problem.file or problem.file == "train-00000.npy"


def inventory(documents: int, tokens: int) -> SplitInventory:
    return SplitInventory.model_construct(documents=documents, tokens=tokens, bytes=0, shards=[])


@pytest.mark.parametrize(
    ("ends", "problem"),
    [
        ([3, 6, 9], None),
        ([3, 6], "2 document ends"),
        ([3, 3, 9], "not behind"),
        ([6, 3, 9], "not behind"),
        ([0, 3, 9], "not behind"),
        ([3, 6, 8], "ends at 8"),
    ],
)
def test_document_ends_rise_to_the_end_of_the_split(ends, problem):
    found = check_document_ends(inventory(3, 9), ends=np.array(ends, dtype=np.uint64))
    assert found is None if problem is None else problem in (found or "")


TOKENS = {
    "N34 an id outside the vocabulary": (7, 65_535, "not in the vocabulary"),
    "end-of-text inside a document": (7, 0, "inside a document"),
    "a document without end-of-text": (1, 5, "without"),
}


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_that_contradict_the_tokenizer_are_found_at_their_position(name, tmp_path):
    position, token, message = TOKENS[name]
    dataset = build_dataset(tmp_path / "data", splits={"train": documents(40)})
    tokens = dataset.split("train").read(50, count=50).copy()
    if name.startswith("a document without"):
        position = int(np.flatnonzero(tokens == 0)[0])
    elif tokens[position] == 0:
        position += 1
    tokens[position] = token
    relist(dataset, "train-00001.npy", array_bytes(tokens, dtype="uint16"))
    assert verify_dataset(dataset.directory).errors == ()
    (problem,) = check_tokens(dataset.directory)
    assert message in str(problem)
    assert f"train-00001.npy: token {position}" in str(problem)
    assert isinstance(problem.error, InvalidDocumentError)


def test_a_manifest_changed_after_the_preparation_is_found(dataset):
    notes = {
        "schema": "ledger.dataset-preparation",
        "version": 1,
        "metadata_sha256": "0" * 64,
        "config": {},
        "started": "2026-01-01T00:00:00.000000Z",
        "seconds": 1.5,
        "python": "CPython",
        "packages": {},
        "engine": "embedded",
        "workers": 1,
        "backend": "tokenizers",
    }
    (dataset.directory / "preparation.json").write_text(json.dumps(notes))
    (problem,) = verify_dataset(dataset.directory).errors
    assert problem.file == METADATA_NAME
    assert isinstance(problem.error, VerificationError)
