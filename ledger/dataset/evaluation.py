"""Batches of held-out text: once from the start, every target position in exactly one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.groups import TokenStream, overlapping
from ledger.dataset.packing import DocumentLayout, Packing, document_layout

__all__ = ["EvaluationBatch", "evaluation_batches"]


@dataclass(frozen=True)
class EvaluationBatch:
    """A batch of held-out text."""

    sequences: NDArray[Any]
    """(sequences, length + 1) ids in their stored type; the last batches of a split are smaller."""
    layout: DocumentLayout | None = None
    """The documents in it, where the packing tells them apart."""

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
    split: TokenStream,
    *,
    micro_batch: int,
    sequence: int,
    batches: int | None = None,
    packing: Packing = "stream",
) -> Iterator[EvaluationBatch]:
    """Yield a split from its start, once: `batches` whole batches, or every target position of it.

    Without a limit the end is not dropped: a batch of fewer sequences follows, then one shorter sequence.
    """
    for start, rows, length in _stretches(
        split.tokens - 1, micro_batch=micro_batch, sequence=sequence, batches=batches
    ):
        stream = split.read(start, count=rows * length + 1)
        layout = None
        if packing == "documents":
            starts = start + length * np.arange(rows)
            layout = document_layout(split, starts=starts, length=length)
        yield EvaluationBatch(overlapping(stream, rows=rows, length=length), layout)


def _stretches(
    targets: int, *, micro_batch: int, sequence: int, batches: int | None
) -> Iterator[tuple[int, int, int]]:
    """Yield start, rows and length of each batch."""
    size = micro_batch * sequence
    whole = targets // size
    for index in range(whole if batches is None else min(batches, whole)):
        yield index * size, micro_batch, sequence
    if batches is not None and batches <= whole:
        return
    start = whole * size
    rows, rest = divmod(targets - start, sequence)
    if rows:
        yield start, rows, sequence
    if rest:
        yield start + rows * sequence, 1, rest
