"""Finds documents with the same text in two splits: what was held out was then trained on.

Texts are compared by their token ids, without decoding: one tokenizer gives equal texts equal ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.manifest import Dataset, Split
from ledger.dataset.parallel import map_in_order
from ledger.dataset.verify import DatasetProblem
from ledger.errors import InvalidDocumentError

__all__ = ["document_digests", "find_held_out_documents", "find_shared_documents", "leaked_share"]

_DIGEST_BYTES: Final = 16
_BLOCK_TOKENS: Final = 2**20
LEAK_TOKENS: Final = 32
"""Length of the blocks by which leaked text is found."""
_FILTER_BITS: Final = 22
_HASH_FACTOR: Final = 0x9E3779B97F4A7C15
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


def leaked_share(held_out: Split, trained: Sequence[Split]) -> float | None:
    """Return which share of a held-out split other splits hold word for word, in blocks of 32 tokens.

    The blocks lie one after the other in what is held out, and anywhere in the other text; None where there is no
    whole block. Blocks are compared by 64-bit hashes, so the share may be a little too large, never too small.

    Raises:
        LedgerError: the shards cannot be read.
    """
    count = held_out.tokens // LEAK_TOKENS
    if not count:
        return None
    every = _rolling_hashes(held_out.read(0, count=count * LEAK_TOKENS))[::LEAK_TOKENS]
    wanted = np.unique(every)
    is_candidate = np.zeros(1 << _FILTER_BITS, dtype=np.bool_)
    is_candidate[wanted >> np.uint64(64 - _FILTER_BITS)] = True
    is_found = np.zeros(len(wanted), dtype=np.bool_)
    for split in trained:
        for start in range(0, split.tokens, _BLOCK_TOKENS):
            size = min(_BLOCK_TOKENS + LEAK_TOKENS - 1, split.tokens - start)
            hashes = _rolling_hashes(split.read(start, count=size))
            hashes = hashes[is_candidate[hashes >> np.uint64(64 - _FILTER_BITS)]]
            places = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
            is_found[places[wanted[places] == hashes]] = True
    return float(is_found[np.searchsorted(wanted, every)].mean())


def _rolling_hashes(tokens: NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of the 32 tokens that begin at each position; one of 2n is made of two of n."""
    hashes, width, factor = tokens.astype(np.uint64), 1, _HASH_FACTOR
    while width < LEAK_TOKENS:
        hashes = hashes[:-width] * np.uint64(factor) + hashes[width:] if len(hashes) > width else hashes[:0]
        width, factor = 2 * width, factor * factor % 2**64
    hashes ^= hashes >> np.uint64(29)
    return hashes * np.uint64(_HASH_FACTOR)  # so that the high bits, which are looked at first, depend on all


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
