"""Reads microbatches: the tokens at a position, their digest, and the cursor behind them.

Everything here is a pure function of the split and the position. `SequentialReader` only remembers where it is, and
its position travels with each batch, so that what was fetched ahead is never mistaken for what was consumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.digest import microbatch_digest, share_digest
from ledger.dataset.order import START, Geometry, ReadingOrder
from ledger.errors import RefusedError
from ledger.records.parts import Cursor, Position

__all__ = [
    "EvaluationBatch",
    "Microbatch",
    "SequentialReader",
    "TokenStream",
    "evaluation_batches",
    "microbatch_at",
]


class TokenStream(Protocol):
    """What is read: `ledger.dataset.manifest.Split`, or anything that reads as it does."""

    @property
    def tokens(self) -> int:
        """Tokens of the stream."""

    def read(self, start: int, *, count: int) -> NDArray[Any]:
        """Return tokens `start` to `start + count` in their stored type."""


@dataclass(frozen=True)
class Microbatch:
    """One microbatch over all replicas, and where reading stands behind it."""

    sequences: NDArray[Any]
    """(sequences, length + 1) ids in their stored type: every sequence's inputs followed by its last target."""
    digest: bytes
    """32 raw bytes; see "A microbatch digest" in the records reference."""
    position: Position
    """Where it begins."""
    cursor: Cursor
    """Source name to the position behind it."""
    data_parallel: int = 1

    @property
    def inputs(self) -> NDArray[Any]:
        """(sequences, length) ids that the model sees."""
        return self.sequences[:, :-1]

    @property
    def targets(self) -> NDArray[Any]:
        """(sequences, length) ids that it is to predict: the inputs moved by one."""
        return self.sequences[:, 1:]

    @property
    def tokens(self) -> int:
        """Target positions."""
        return int(self.targets.size)

    def share(self, rank: int) -> NDArray[Any]:
        """Return the (micro_batch, length + 1) sequences of one data-parallel rank."""
        rows = self.sequences.shape[0] // self.data_parallel
        return self.sequences[rank * rows : (rank + 1) * rows]


def microbatch_at(split: TokenStream, *, source: str, order: ReadingOrder, position: Position) -> Microbatch:
    """Return the microbatch that begins at `position` of `split`.

    Raises:
        RefusedError: `order` has no microbatch there.
        StorageError: the shards could not be read.
    """
    after = order.after(position)
    geometry = order.geometry
    stream = split.read(position.offset, count=geometry.tokens + 1)
    sequences = _overlapping(stream, rows=geometry.sequences, length=geometry.sequence)
    shares = sequences.reshape(geometry.data_parallel, geometry.micro_batch, geometry.sequence + 1)
    digest = microbatch_digest(share_digest(share) for share in shares)
    return Microbatch(sequences, digest, position, {source: after}, geometry.data_parallel)


class SequentialReader:
    """Reads one split from a position on, without end: a new epoch begins where one is exhausted."""

    def __init__(
        self,
        split: TokenStream,
        *,
        source: str,
        geometry: Geometry,
        repeat: int | None = None,
        position: Position = START,
    ) -> None:
        """Stand at `position`.

        Args:
            split: what is read.
            source: the name of the split in cursors.
            geometry: the shape of a microbatch.
            repeat: the first `repeat` microbatches are the whole source.
            position: where to go on, from a cursor.

        Raises:
            EvidenceMissingError: the split is too small.
            RefusedError: the position cannot be reached with this geometry and source.
        """
        self.order = ReadingOrder(split.tokens, geometry, repeat)
        self.order.validate(position)
        self._split = split
        self._source = source
        self._position = position

    @property
    def cursor(self) -> Cursor:
        """Where the next microbatch begins."""
        return {self._source: self._position}

    def next(self) -> Microbatch:
        """Return the next microbatch and stand behind it."""
        batch = microbatch_at(self._split, source=self._source, order=self.order, position=self._position)
        self._position = batch.cursor[self._source]
        return batch

    def restore(self, cursor: Cursor) -> None:
        """Stand where a cursor says.

        Raises:
            RefusedError: it names other sources, or a position that cannot be reached here.
        """
        if set(cursor) != {self._source}:
            problem = f"the cursor names the sources {sorted(cursor)}"
            raise RefusedError(problem, place="cursor", expected=f"the source {self._source!r} alone")
        self.order.validate(cursor[self._source])
        self._position = cursor[self._source]


@dataclass(frozen=True)
class EvaluationBatch:
    """A batch of held-out text: every target position of the split lies in exactly one."""

    sequences: NDArray[Any]
    """(sequences, length + 1) ids in their stored type; the last batches of a split are smaller."""

    @property
    def inputs(self) -> NDArray[Any]:
        """(sequences, length) ids that the model sees."""
        return self.sequences[:, :-1]

    @property
    def targets(self) -> NDArray[Any]:
        """(sequences, length) ids that it is to predict."""
        return self.sequences[:, 1:]

    @property
    def tokens(self) -> int:
        """Target positions."""
        return int(self.targets.size)


def evaluation_batches(
    split: TokenStream, *, micro_batch: int, sequence: int, batches: int | None = None
) -> Iterator[EvaluationBatch]:
    """Yield a split from its start, once: `batches` whole batches, or every target position of it.

    Without a limit the end is not dropped: a batch of fewer sequences follows, then one shorter sequence.
    """
    size = micro_batch * sequence
    targets = split.tokens - 1
    whole = targets // size
    for index in range(whole if batches is None else min(batches, whole)):
        yield _evaluation_batch(split, start=index * size, rows=micro_batch, length=sequence)
    if batches is not None and batches <= whole:
        return
    start = whole * size
    rows, rest = divmod(targets - start, sequence)
    if rows:
        yield _evaluation_batch(split, start=start, rows=rows, length=sequence)
    if rest:
        yield _evaluation_batch(split, start=start + rows * sequence, rows=1, length=rest)


def _evaluation_batch(split: TokenStream, *, start: int, rows: int, length: int) -> EvaluationBatch:
    stream = split.read(start, count=rows * length + 1)
    return EvaluationBatch(_overlapping(stream, rows=rows, length=length))


def _overlapping(stream: NDArray[Any], *, rows: int, length: int) -> NDArray[Any]:
    """Cut rows × length + 1 tokens into (rows, length + 1) sequences, each beginning with its predecessor's end."""
    windows = np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::length]
    sequences: NDArray[Any] = np.ascontiguousarray(windows[:rows])
    return sequences
