"""What a prepared dataset holds, in numbers that people understand; everything is read from its files.

Duplicates are documents of one split with exactly the ids of another one there. Found by the first 8 bytes of the
SHA-256 of their ids: 8 bytes of memory a document; a chance match among 100 million is less likely than 1 in 1,000.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.manifest import Dataset, Split
from ledger.records.fields import Json

__all__ = ["Bucket", "DatasetInventory", "SplitReport", "take_inventory"]

_CHUNK_TOKENS: Final = 2**22
_QUANTILES: Final = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Bucket:
    """Documents whose tokens, end-of-text included, lie between two bounds."""

    at_least: int
    below: int
    documents: int
    tokens: int


@dataclass(frozen=True)
class SplitReport:
    """What one split holds."""

    name: str
    documents: int
    tokens: int
    text_bytes: int
    shards: int
    stored_bytes: int
    bytes_per_token: float
    """Bytes of text for each token, end-of-text included."""
    shortest: int
    longest: int
    mean: float
    quantiles: dict[str, int]
    """Tokens of a document at 5, 50 and 95 % of the documents."""
    histogram: list[Bucket]
    """By powers of two; empty ones between others included."""
    duplicates: int | None
    """Documents that repeat an earlier one; null where they were not counted."""


@dataclass(frozen=True)
class DatasetInventory:
    """What a dataset holds."""

    metadata_sha256: str
    source: str
    tokenizer: str
    vocabulary: int
    dtype: str
    left_out: dict[str, int]
    shared: int
    """Training documents whose text a given validation source holds too."""
    splits: list[SplitReport]

    def as_json(self) -> dict[str, Json]:
        """Return it as one JSON object."""
        return asdict(self)


def take_inventory(
    dataset: Dataset, *, duplicates: bool = True, progress: Callable[[int], object] | None = None
) -> DatasetInventory:
    """Read a dataset's document ends and, to count duplicates, its tokens.

    Args:
        dataset: what is counted.
        duplicates: whether every token is read to find documents that repeat.
        progress: told of tokens as they are read.

    Raises:
        LedgerError: a file could not be read.
    """
    manifest = dataset.manifest
    revision = manifest.source.resolved_revision
    return DatasetInventory(
        metadata_sha256=dataset.metadata_sha256,
        source=manifest.source.id if revision is None else f"{manifest.source.id} at {revision}",
        tokenizer=manifest.tokenizer.id,
        vocabulary=manifest.tokenizer.vocabulary,
        dtype=manifest.dtype,
        left_out=dict(manifest.left_out),
        shared=manifest.shared,
        splits=[
            _report(dataset.split(name), duplicates=duplicates, progress=progress) for name in manifest.splits
        ],
    )


def _report(split: Split, *, duplicates: bool, progress: Callable[[int], object] | None) -> SplitReport:
    ends = split.document_ends().astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    quantiles = np.quantile(lengths, _QUANTILES, method="inverted_cdf").astype(int).tolist()
    inventory = split.inventory
    return SplitReport(
        name=split.name,
        documents=inventory.documents,
        tokens=inventory.tokens,
        text_bytes=inventory.bytes,
        shards=len(inventory.shards),
        stored_bytes=sum(shard.bytes for shard in inventory.shards),
        bytes_per_token=inventory.bytes / inventory.tokens,
        shortest=int(lengths.min()),
        longest=int(lengths.max()),
        mean=inventory.tokens / inventory.documents,
        quantiles=dict(zip((f"{share:.0%}" for share in _QUANTILES), quantiles, strict=True)),
        histogram=_histogram(lengths),
        duplicates=_count_duplicates(split, ends=ends, progress=progress) if duplicates else None,
    )


def _histogram(lengths: NDArray[np.int64]) -> list[Bucket]:
    powers = np.floor(np.log2(lengths)).astype(int)
    documents = np.bincount(powers)
    tokens = np.bincount(powers, weights=lengths.astype(np.float64))
    first = int(powers.min())
    return [
        Bucket(2**power, 2 ** (power + 1), int(documents[power]), int(tokens[power]))
        for power in range(first, documents.size)
    ]


def _count_duplicates(
    split: Split, *, ends: NDArray[np.int64], progress: Callable[[int], object] | None
) -> int:
    digests = np.fromiter(_digests(split, ends=ends, progress=progress), dtype=np.uint64, count=ends.size)
    digests.sort()
    return int(np.count_nonzero(digests[1:] == digests[:-1]))


def _digests(
    split: Split, *, ends: NDArray[np.int64], progress: Callable[[int], object] | None
) -> Iterator[int]:
    """Yield a number for the ids of every document, reading the split once in chunks that documents may cross."""
    open_digest, document, position = hashlib.sha256(), 0, 0
    while position < split.tokens:
        chunk = split.read(position, count=min(_CHUNK_TOKENS, split.tokens - position))
        begin = 0
        while document < ends.size and ends[document] <= position + chunk.size:
            stop = int(ends[document]) - position
            open_digest.update(_bytes(chunk[begin:stop]))
            yield int.from_bytes(open_digest.digest()[:8], "little")
            open_digest, document, begin = hashlib.sha256(), document + 1, stop
        open_digest.update(_bytes(chunk[begin:]))
        position += chunk.size
        if progress is not None:
            progress(int(chunk.size))


def _bytes(ids: NDArray[Any]) -> memoryview:
    return np.ascontiguousarray(ids).view(np.uint8).data
