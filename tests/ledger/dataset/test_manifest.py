"""Opening a dataset finds what is missing, misshapen or unsafe, without hashing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.dataset.manifest import METADATA_NAME, open_dataset
from ledger.dataset.npy import array_bytes, read_array, write_array
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    LedgerError,
    NewerVersionError,
    UnsafeError,
    UsageError,
    VerificationError,
)
from tests.ledger.dataset.builders import build_dataset, documents

COR, INV, REF, MISS = VerificationError, InvalidDocumentError, UnsafeError, EvidenceMissingError


@pytest.fixture
def dataset(tmp_path):
    return build_dataset(tmp_path / "data", splits={"train": documents(40), "validation": documents(9)})


def edit(dataset, change) -> None:
    path = dataset.directory / METADATA_NAME
    value = json.loads(path.read_bytes())
    change(value)
    path.write_text(json.dumps(value))


def shard(value: Any, index: int = 0) -> Any:
    return value["splits"]["train"]["shards"][index]


EDITS: dict[str, tuple[Callable[[Any], object], type[LedgerError]]] = {
    "D02 no shards": (lambda v: v["splits"]["train"].update(shards=[]), INV),
    "D02 no splits": (lambda v: v.update(splits={}), INV),
    "D04 the same name": (lambda v: shard(v, 1).update(file=shard(v)["file"]), INV),
    "D04 equal but for case": (lambda v: shard(v, 1).update(file=shard(v)["file"].upper()), INV),
    "D04 the name of the manifest": (lambda v: shard(v).update(file="Metadata.json"), INV),
    "D05 parent": (lambda v: shard(v).update(file="../x.npy"), REF),
    "D05 dots": (lambda v: shard(v).update(file=".."), REF),
    "D06 absolute": (lambda v: shard(v).update(file="/etc/x.npy"), REF),
    "D08 backslash": (lambda v: shard(v).update(file="..\\x.npy"), REF),
    "D08 drive": (lambda v: shard(v).update(file="C:x.npy"), REF),
    "D08 address": (lambda v: shard(v).update(file="file://x.npy"), REF),
    "D09 newline": (lambda v: shard(v).update(file="a\nb.npy"), REF),
    "D09 escape": (lambda v: shard(v).update(file="a\x1b[2Jb.npy"), REF),
    "D09 right-to-left": (lambda v: shard(v).update(file="a\u202eypn.b"), REF),
    "D05 ends": (lambda v: shard(v)["ends"].update(file="../x.npy"), REF),
    "D10 too long": (lambda v: shard(v).update(file="a" * 256), INV),
    "hidden": (lambda v: shard(v).update(file=".x.npy"), INV),
    "not ASCII": (lambda v: shard(v).update(file="tr\u00e4in.npy"), INV),
    "D21 token count": (
        lambda v: (
            shard(v).update(tokens=49, bytes=226),
            v["splits"]["train"].update(tokens=v["splits"]["train"]["tokens"] - 1),
        ),
        COR,
    ),
    "D22 total of tokens": (lambda v: v["splits"]["train"].update(tokens=5), INV),
    "D22 total of documents": (lambda v: v["splits"]["train"].update(documents=5), INV),
    "D29 size negative": (lambda v: shard(v).update(bytes=-1), INV),
    "D29 size a text": (lambda v: shard(v).update(bytes="228"), INV),
    "D29 size too large": (lambda v: shard(v).update(bytes=2**60), INV),
    "D29 size a fraction": (lambda v: shard(v).update(bytes=228.5), INV),
    "size contradicts tokens": (lambda v: shard(v).update(bytes=229), INV),
    "D30 unknown key": (lambda v: shard(v).update(encoded_path="eA=="), INV),
    "dtype contradicts vocabulary": (lambda v: v.update(dtype="uint32"), INV),
    "D20 dtype": (
        lambda v: (
            v.update(dtype="uint32"),
            v["tokenizer"].update(vocabulary=70_000),
            [
                entry.update(bytes=128 + 4 * entry["tokens"])
                for split in v["splits"].values()
                for entry in split["shards"]
            ],
        ),
        COR,
    ),
    "EOS outside the vocabulary": (lambda v: v["tokenizer"].update(eos_id=300), INV),
    "ends without documents": (lambda v: shard(v).update(ends=None), INV),
    "digest in upper case": (lambda v: shard(v).update(sha256="A" * 64), INV),
    "newer version": (lambda v: v.update(version=2), NewerVersionError),
    "another schema": (lambda v: v.update(schema="ledger.run"), INV),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_manifest_has_its_verdict(name, dataset):
    change, verdict = EDITS[name]
    edit(dataset, change)
    with pytest.raises(verdict) as caught:
        open_dataset(dataset.directory)
    assert type(caught.value) is verdict


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def replace_by_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


FILES: dict[str, tuple[Callable[[Path], object], type[LedgerError]]] = {
    "missing": (lambda p: p.unlink(), MISS),
    "D17 one byte short": (lambda p: os.truncate(p, p.stat().st_size - 1), COR),
    "D17 one byte long": (lambda p: p.write_bytes(p.read_bytes() + b"\0"), COR),
    "D12 link": (replace_by_link, REF),
    "D14 pipe": (replace_by_pipe, REF),
    "D14 folder": (replace_by_folder, REF),
    "D20 another type": (
        lambda p: p.write_bytes(array_bytes(np.zeros(50, dtype=np.uint32), dtype="uint32")),
        COR,
    ),
    "D21 another length": (
        lambda p: p.write_bytes(array_bytes(np.zeros(49, dtype=np.uint16), dtype="uint16")),
        COR,
    ),
}


@pytest.mark.parametrize("file", ["train-00001.npy", "validation-00000.ends.npy"])
@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_has_its_verdict_and_is_named(name, file, dataset):
    change, verdict = FILES[name]
    change(dataset.directory / file)
    with pytest.raises(verdict) as caught:
        open_dataset(dataset.directory)
    assert type(caught.value) is verdict
    assert file in str(caught.value)


def test_a_missing_tokenizer_is_missing(dataset):
    (dataset.directory / "tokenizer.json").unlink()
    with pytest.raises(MISS, match=r"tokenizer\.json"):
        open_dataset(dataset.directory)


def test_a_folder_without_a_manifest_is_no_dataset(tmp_path):
    with pytest.raises(MISS, match="no prepared dataset"):
        open_dataset(tmp_path)


def test_the_identity_does_not_depend_on_whitespace_or_place(dataset, tmp_path):
    path = dataset.directory / METADATA_NAME
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=4))
    dataset.directory.rename(tmp_path / "moved")
    assert open_dataset(tmp_path / "moved").metadata_sha256 == dataset.metadata_sha256


def test_a_split_reads_across_shards(dataset):
    split = dataset.split("train")
    stream = [token for document in documents(40) for token in document]
    assert split.read(0, count=split.tokens).tolist() == stream
    assert split.read(45, count=70).tolist() == stream[45:115]
    assert split.read(49, count=1).tolist() == stream[49:50]
    assert split.read(50, count=1).tolist() == stream[50:51]


@pytest.mark.parametrize(("start", "count"), [(-1, 2), (0, 0), (190, 20), (10**9, 1)])
def test_a_range_outside_the_split_is_refused(start, count, dataset):
    with pytest.raises(UsageError):
        dataset.split("train").read(start, count=count)


def test_an_unknown_split_names_the_known_ones(dataset):
    with pytest.raises(MISS, match="train, validation"):
        dataset.split("test")


@pytest.mark.parametrize("place", [0, 1, -1])
def test_document_ends_that_lead_elsewhere_are_refused_where_they_are_read(place, tmp_path):
    """Opening hashes nothing, so a changed byte is met when the ends are used: never as an index out of bounds."""
    dataset = build_dataset(tmp_path / "data", splits={"train": documents(50)})
    path = dataset.directory / "train-00001.ends.npy"
    ends = read_array(path).copy()
    ends[place] ^= np.uint64(2**40)
    path.unlink()
    write_array(path, ends, dtype="uint64")
    split = open_dataset(dataset.directory).split("train")
    problem = r"train-00001\.ends\.npy: the document ends do not rise"
    with pytest.raises(VerificationError, match=problem):
        split.ends_in(0, split.tokens)
    with pytest.raises(VerificationError, match=problem):
        split.document_ends()
