"""Positions: where each microbatch of a source begins in an epoch, what a cursor means, what comes after it.

`ReadingOrder` is arithmetic alone and the same whether the source is shuffled or not; the audit uses it without a
dataset. The tail of a source that does not fill a microbatch is dropped and counted, never padded; at the end
reading starts again with the next epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

from ledger.errors import EvidenceMissingError, RefusedError, UsageError
from ledger.laws.batches import tokens_per_microbatch, usable_tokens
from ledger.records.parts import Position

__all__ = ["START", "Geometry", "ReadingOrder"]

START = Position(0, 0)
"""Where a fresh run begins to read."""


@dataclass(frozen=True)
class Geometry:
    """The shape of one microbatch over all data-parallel replicas."""

    micro_batch: int
    """Sequences of one replica."""
    sequence: int
    """Tokens of one sequence; its targets reach one further."""
    data_parallel: int = 1
    """Replicas; each takes a contiguous share of the sequences, in rank order."""

    def __post_init__(self) -> None:
        for name in ("micro_batch", "sequence", "data_parallel"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}", expected="at least 1")

    @property
    def sequences(self) -> int:
        """Sequences of one microbatch over all replicas."""
        return self.micro_batch * self.data_parallel

    @property
    def tokens(self) -> int:
        """Target positions of one microbatch over all replicas."""
        return tokens_per_microbatch(
            micro_batch=self.micro_batch, sequence_length=self.sequence, replicas=self.data_parallel
        )


@dataclass(frozen=True)
class ReadingOrder:
    """How a source of `source_tokens` tokens is read in microbatches, epoch after epoch.

    Raises:
        EvidenceMissingError: the source holds too little for one microbatch, or for `repeat` of them.
    """

    source_tokens: int
    geometry: Geometry
    repeat: int | None = None
    """The first `repeat` microbatches are the whole source; null: all of them."""

    def __post_init__(self) -> None:
        needed = self.repeat or 1
        if self.repeat is not None and self.repeat < 1:
            raise UsageError(f"repeat is {self.repeat}", expected="at least 1, or null")
        if self.whole_microbatches < needed:
            size = self.geometry.tokens
            problem = (
                f"the source holds {self.source_tokens} tokens: {self.whole_microbatches} whole microbatches"
            )
            raise EvidenceMissingError(
                problem,
                expected=f"at least {needed} of {size} tokens and one more token as the last target",
                advice="prepare more text, or make the batch smaller",
            )

    @property
    def whole_microbatches(self) -> int:
        """Microbatches that the source could fill: each has all its targets."""
        size = self.geometry.tokens
        return usable_tokens(tokens=self.source_tokens, tokens_per_microbatch=size) // size

    @property
    def microbatches_per_epoch(self) -> int:
        """Microbatches of one epoch."""
        return self.repeat or self.whole_microbatches

    @property
    def usable_tokens(self) -> int:
        """Tokens of one epoch."""
        return self.microbatches_per_epoch * self.geometry.tokens

    @property
    def dropped_tokens(self) -> int:
        """Target positions of the source behind the last microbatch of an epoch."""
        return self.source_tokens - 1 - self.usable_tokens

    def validate(self, position: Position) -> None:
        """Insist that a position is one that this order can reach.

        Raises:
            RefusedError: it is not: another geometry, another source or another `repeat` wrote it.
        """
        if position.offset % self.geometry.tokens or position.offset >= self.usable_tokens:
            raise RefusedError(
                f"offset {position.offset} is no position of this source",
                place="cursor",
                expected=f"a multiple of {self.geometry.tokens} below {self.usable_tokens}",
                advice="resume with the batch geometry, data and repeat of the run",
            )

    def after(self, position: Position) -> Position:
        """Return the position behind the microbatch at `position`; an epoch's end is `(epoch + 1, 0)`."""
        self.validate(position)
        offset = position.offset + self.geometry.tokens
        return (
            Position(position.epoch, offset)
            if offset < self.usable_tokens
            else Position(position.epoch + 1, 0)
        )

    def position_of(self, microbatch: int) -> Position:
        """Return where the microbatch with this number (from 0, counted over all epochs) begins."""
        epoch, index = divmod(microbatch, self.microbatches_per_epoch)
        return Position(epoch, index * self.geometry.tokens)

    def microbatch_at(self, position: Position) -> int:
        """Return the number (from 0, counted over all epochs) of the microbatch that begins at `position`."""
        self.validate(position)
        return position.epoch * self.microbatches_per_epoch + position.offset // self.geometry.tokens
