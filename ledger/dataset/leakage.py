"""Finds documents with the same text in two splits: what was held out was then trained on.

Texts are compared by their token ids, without decoding: one tokenizer gives equal texts equal ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.manifest import Dataset, Split
from ledger.dataset.parallel import map_in_order
from ledger.dataset.verify import DatasetProblem
from ledger.errors import InvalidDocumentError

__all__ = ["document_digests", "find_held_out_documents", "find_shared_documents"]

_DIGEST_BYTES: Final = 16
_BLOCK_TOKENS: Final = 2**20
_HELD_OUT: Final = "validation"
_KEYED_SPLIT: Final = "keyed-hash"


def find_shared_documents(dataset: Dataset) -> Iterator[DatasetProblem]:
    """Yield one problem for each pair of splits that share documents, with their number and the first of them.

    It is an error where the dataset's own rule made the splits, which keeps equal texts together, and a warning
    where the validation text was given. Memory is that of the digests of all splits but the largest.

    Raises:
        LedgerError: the shards cannot be read.
    """
    names = sorted(dataset.manifest.splits, key=lambda name: dataset.manifest.splits[name].documents)
    is_ours = dataset.manifest.preparation.split.rule == _KEYED_SPLIT
    known: dict[bytes, tuple[str, int]] = {}
    for name in names:
        split = dataset.split(name)
        shared: dict[str, _Shared] = {}
        for number, digest in enumerate(document_digests(split)):
            other = known.get(digest)
            if other is not None and other[0] != name:
                shared.setdefault(other[0], _Shared(number, other[1])).count += 1
            elif other is None and name != names[-1]:
                known[digest] = (name, number)
        for other_name, found in shared.items():
            yield _problem(split, other_name, found, severity="error" if is_ours else "warning")


def find_held_out_documents(dataset: Dataset, *, held_out: Dataset) -> Iterator[DatasetProblem]:
    """Yield a warning where a dataset trains on documents that another one holds out; memory is that of the latter.

    Raises:
        LedgerError: the shards cannot be read.
    """
    known: dict[bytes, int] = {}
    for number, digest in enumerate(document_digests(held_out.split(_HELD_OUT))):
        known.setdefault(digest, number)
    split, shared = dataset.split("train"), _Shared(0, 0)
    for number, digest in enumerate(document_digests(split)):
        other = known.get(digest)
        if other is not None:
            shared = shared if shared.count else _Shared(number, other)
            shared.count += 1
    if shared.count:
        yield _problem(split, f"{_HELD_OUT} of {held_out.directory.name}", shared, severity="warning")


def document_digests(split: Split) -> Iterator[bytes]:
    """Yield a digest of the ids of each document, in the order of the split."""
    for digests in map_in_order(partial(_digests, split), _blocks(split)):
        yield from digests


def _digests(split: Split, block: tuple[int, NDArray[np.uint64]]) -> list[bytes]:
    start, ends = block
    tokens = split.read(start, count=int(ends[-1]) - start)
    data, size = memoryview(tokens.tobytes()), tokens.dtype.itemsize
    stops = ((ends - np.uint64(start)).astype(np.int64) * size).tolist()
    return [
        blake2b(data[begin:stop], digest_size=_DIGEST_BYTES).digest() for begin, stop in pairwise([0, *stops])
    ]


def _blocks(split: Split) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    """Yield where a stretch of few tokens, but at least one document, begins, and the document ends in it."""
    start = 0
    while start < split.tokens:
        stop = min(start + _BLOCK_TOKENS, split.tokens)
        ends = split.ends_in(start, stop)
        while not ends.size:
            stop = min(stop + _BLOCK_TOKENS, split.tokens)
            ends = split.ends_in(start, stop)
        yield start, ends
        start = int(ends[-1])


@dataclass
class _Shared:
    """What two splits have in common: the first document and how many there are."""

    number: int
    other_number: int
    count: int = 0


def _problem(
    split: Split, other: str, shared: _Shared, *, severity: Literal["error", "warning"]
) -> DatasetProblem:
    file = split.inventory.shards[0].file
    error = InvalidDocumentError(
        f"{shared.count} documents have a text that {other} holds, too: document {shared.number} is document "
        f"{shared.other_number} there",
        path=split.directory / file,
        place=f"split {split.name}",
        expected="equal texts in one split",
        advice="prepare the dataset again, so that what is held out is not trained on",
    )
    return DatasetProblem(file, error, severity)
