"""Reads the sequences of an epoch: in the stream's order, or shuffled within groups of shards.

`GroupedSequences` holds the group that is being read and the one behind it, which a thread loads meanwhile.
`ScatteredSequences` reads the same sequences one by one, for whoever wants a few from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.order import ReadingOrder
from ledger.dataset.shuffle import GroupTable, Shuffle, sequence_order

__all__ = [
    "GroupedSequences",
    "Rows",
    "ScatteredSequences",
    "Sequences",
    "StreamSequences",
    "TokenStream",
    "overlapping",
]


class TokenStream(Protocol):
    """What is read: `ledger.dataset.manifest.Split`, or anything that reads as it does."""

    @property
    def tokens(self) -> int:
        """Tokens of the stream."""

    @property
    def shard_tokens(self) -> list[int]:
        """Tokens of each shard, in order; asked for only where groups of shards are shuffled."""

    def read(self, start: int, *, count: int) -> NDArray[Any]:
        """Return tokens `start` to `start + count` in their stored type."""

    def ends_in(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the document ends e with start < e <= stop; asked for only where documents matter."""


class Rows(NamedTuple):
    """Sequences in the order of reading."""

    sequences: NDArray[Any]
    """(rows, length + 1) ids: every sequence's inputs followed by its last target."""
    starts: NDArray[np.int64]
    """Where each begins in the stream."""


class Sequences(Protocol):
    """An epoch as sequences; a slot is a place in its order."""

    def rows(self, epoch: int, *, slot: int, count: int) -> Rows:
        """Return `count` sequences from a slot of an epoch on."""

    def close(self) -> None:
        """Let go of memory and threads."""


class StreamSequences:
    """Sequences in the order of the stream, the same in every epoch."""

    def __init__(self, stream: TokenStream, *, length: int) -> None:
        self._stream = stream
        self._length = length

    def rows(self, epoch: int, *, slot: int, count: int) -> Rows:  # noqa: ARG002 - every epoch is the same
        """Return `count` sequences from a slot of an epoch on."""
        begin = slot * self._length
        tokens = self._stream.read(begin, count=count * self._length + 1)
        starts = begin + self._length * np.arange(count, dtype=np.int64)
        return Rows(overlapping(tokens, rows=count, length=self._length), starts)

    def close(self) -> None:
        """Hold nothing."""


class _Key(NamedTuple):
    epoch: int
    group: int


@dataclass(frozen=True)
class _Group:
    """A group in memory."""

    first: int
    """Its first sequence: also its first slot."""
    order: NDArray[np.intp]
    windows: NDArray[Any]
    """(sequences, length + 1), a view of the group's tokens."""


class _Groups:
    """The groups of a source: where they lie and how each is ordered."""

    def __init__(self, stream: TokenStream, *, order: ReadingOrder, shuffle: Shuffle) -> None:
        self.stream = stream
        self.length = order.geometry.sequence
        self.table = GroupTable(
            stream.shard_tokens,
            group_shards=shuffle.group_shards,
            sequence=self.length,
            sequences=order.whole_microbatches * order.geometry.sequences,
        )
        self._seed = shuffle.seed
        self._slots = order.microbatches_per_epoch * order.geometry.sequences
        self._repeats = order.repeat is not None

    def pieces(self, epoch: int, *, slot: int, count: int) -> Iterator[tuple[_Key, int, int]]:
        """Yield the groups that hold a stretch of slots, each with the stretch's part of it."""
        while count:
            key = _Key(0 if self._repeats else epoch, self.table.group_of(slot))
            first, end = self.table.bounds(key.group)
            taken = min(count, end - slot)
            yield key, slot - first, taken
            slot, count = slot + taken, count - taken

    def following(self, key: _Key) -> _Key:
        """Return the group that is read after this one."""
        end = self.table.bounds(key.group)[1]
        if end < self._slots:
            return _Key(key.epoch, self.table.group_of(end))
        return _Key(0 if self._repeats else key.epoch + 1, self.table.group_of(0))

    def order(self, key: _Key) -> NDArray[np.intp]:
        """Return the order of a group's sequences."""
        first, end = self.table.bounds(key.group)
        return sequence_order(seed=self._seed, epoch=key.epoch, group=key.group, sequences=end - first)

    def load(self, key: _Key) -> _Group:
        """Read a group into memory."""
        first, end = self.table.bounds(key.group)
        tokens = self.stream.read(first * self.length, count=(end - first) * self.length + 1)
        return _Group(first, self.order(key), _windows(tokens, length=self.length))


class GroupedSequences:
    """Sequences shuffled within groups, two groups at most in memory; for reading in order."""

    def __init__(self, stream: TokenStream, *, order: ReadingOrder, shuffle: Shuffle) -> None:
        self._groups = _Groups(stream, order=order, shuffle=shuffle)
        self._loading: dict[_Key, Future[_Group]] = {}
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger-group")

    def rows(self, epoch: int, *, slot: int, count: int) -> Rows:
        """Return `count` sequences from a slot of an epoch on."""
        parts, starts = [], []
        for key, place, taken in self._groups.pieces(epoch, slot=slot, count=count):
            group = self._group(key)
            chosen = group.order[place : place + taken]
            parts.append(group.windows[chosen])
            starts.append((group.first + chosen) * self._groups.length)
        return Rows(_joined(parts), _joined(starts))

    def close(self) -> None:
        """Let go of the groups; the thread ends with what it is at."""
        self._loading.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _group(self, key: _Key) -> _Group:
        wanted = {key, self._groups.following(key)}
        for other in self._loading.keys() - wanted:
            self._loading.pop(other).cancel()
        if key not in self._loading:
            self._loading[key] = self._pool.submit(self._groups.load, key)
        group = self._loading[key].result()
        for other in wanted - self._loading.keys():
            self._loading[other] = self._pool.submit(self._groups.load, other)
        return group


class ScatteredSequences:
    """Sequences shuffled within groups, each read for itself; for a few from anywhere."""

    def __init__(self, stream: TokenStream, *, order: ReadingOrder, shuffle: Shuffle) -> None:
        self._groups = _Groups(stream, order=order, shuffle=shuffle)
        self._order = lru_cache(maxsize=2)(self._groups.order)

    def rows(self, epoch: int, *, slot: int, count: int) -> Rows:
        """Return `count` sequences from a slot of an epoch on."""
        starts = _joined(
            [
                (self._groups.table.bounds(key.group)[0] + self._order(key)[place : place + taken])
                * self._groups.length
                for key, place, taken in self._groups.pieces(epoch, slot=slot, count=count)
            ]
        )
        read = self._groups.stream.read
        return Rows(np.stack([read(int(start), count=self._groups.length + 1) for start in starts]), starts)

    def close(self) -> None:
        """Hold nothing."""


def overlapping(stream: NDArray[Any], *, rows: int, length: int) -> NDArray[Any]:
    """Cut rows × length + 1 tokens into (rows, length + 1) sequences, each beginning with its predecessor's end."""
    sequences: NDArray[Any] = np.ascontiguousarray(_windows(stream, length=length)[:rows])
    return sequences


def _windows(stream: NDArray[Any], *, length: int) -> NDArray[Any]:
    return np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::length]


def _joined(parts: list[NDArray[Any]]) -> NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
