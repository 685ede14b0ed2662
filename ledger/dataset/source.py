"""One source of training text: its microbatches by position. Nothing here remembers where reading stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.digest import microbatch_digest, share_digest
from ledger.dataset.groups import (
    GroupedSequences,
    ScatteredSequences,
    Sequences,
    StreamSequences,
    TokenStream,
)
from ledger.dataset.order import Geometry, ReadingOrder
from ledger.dataset.packing import DocumentLayout, Packing, document_layout
from ledger.dataset.shuffle import Shuffle
from ledger.records.parts import Cursor, Position

__all__ = ["Microbatch", "Source"]


@dataclass(frozen=True)
class Microbatch:
    """One microbatch over all replicas, and where reading stands behind it."""

    sequences: NDArray[Any]
    """(sequences, length + 1) ids in their stored type: every sequence's inputs followed by its last target."""
    digest: bytes
    """32 raw bytes; see "A microbatch digest" in the records reference."""
    source: str
    """The source that it was read from."""
    position: Position
    """Where it begins in its source."""
    cursor: Cursor
    """Every source's name to the position behind it."""
    starts: NDArray[np.int64]
    """Where each sequence begins in the source's stream."""
    layout: DocumentLayout | None = None
    """The documents in it, where the packing tells them apart."""
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

    @property
    def loss_tokens(self) -> int:
        """Target positions that count in the loss."""
        return self.tokens if self.layout is None else self.layout.loss_tokens

    def share(self, rank: int) -> NDArray[Any]:
        """Return the (micro_batch, length + 1) sequences of one data-parallel rank."""
        rows = self.sequences.shape[0] // self.data_parallel
        return self.sequences[rank * rows : (rank + 1) * rows]


class Source:
    """A split as training reads it: by position, in the stream's order or shuffled within groups of shards."""

    def __init__(
        self,
        stream: TokenStream,
        *,
        name: str,
        geometry: Geometry,
        repeat: int | None = None,
        shuffle: Shuffle | None = None,
        packing: Packing = "stream",
        scattered: bool = False,
    ) -> None:
        """Prepare to read.

        Args:
            stream: the split.
            name: its name in cursors.
            geometry: the shape of a microbatch.
            repeat: the first `repeat` microbatches of epoch 0 are the whole source.
            shuffle: shuffle within groups of shards; null: the stream's order.
            packing: `documents`: also say where documents end.
            scattered: a few microbatches from anywhere are wanted: never load a whole group.

        Raises:
            EvidenceMissingError: the split is too small.
        """
        self.name = name
        self.order = ReadingOrder(stream.tokens, geometry, repeat)
        self._stream = stream
        self._packing = packing
        self._sequences: Sequences
        if shuffle is None:
            self._sequences = StreamSequences(stream, length=geometry.sequence)
        elif scattered:
            self._sequences = ScatteredSequences(stream, order=self.order, shuffle=shuffle)
        else:
            self._sequences = GroupedSequences(stream, order=self.order, shuffle=shuffle)

    def microbatch_at(self, position: Position) -> Microbatch:
        """Return the microbatch that begins at a position; its cursor names this source alone.

        Raises:
            RefusedError: there is no microbatch there.
            StorageError: the shards could not be read.
        """
        after = self.order.after(position)
        geometry = self.order.geometry
        slot = position.offset // geometry.sequence
        sequences, starts = self._sequences.rows(position.epoch, slot=slot, count=geometry.sequences)
        shares = sequences.reshape(geometry.data_parallel, geometry.micro_batch, geometry.sequence + 1)
        return Microbatch(
            sequences=sequences,
            digest=microbatch_digest(share_digest(share) for share in shares),
            source=self.name,
            position=position,
            cursor={self.name: after},
            starts=starts,
            layout=self._layout(starts),
            data_parallel=geometry.data_parallel,
        )

    def close(self) -> None:
        """Let go of memory and threads."""
        self._sequences.close()

    def _layout(self, starts: NDArray[np.int64]) -> DocumentLayout | None:
        if self._packing == "stream":
            return None
        return document_layout(self._stream, starts=starts, length=self.order.geometry.sequence)
