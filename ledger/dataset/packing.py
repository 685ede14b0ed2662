"""Where documents end inside the sequences of a batch, so that attention and loss can stop there.

A sequence is cut from the token stream and may hold the ends of several documents. With the packing `documents` a
position attends to its own document alone, and the position of an end-of-text token, whose target is the first
token of another document, does not count in the loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["DocumentLayout", "EndsStream", "Packing", "document_layout"]

Packing = Literal["stream", "documents"]
"""`stream`: documents follow each other and nothing is masked; `documents`: they do not see each other."""


class EndsStream(Protocol):
    """What knows where documents end: `ledger.dataset.manifest.Split`, or anything that answers as it does."""

    def ends_in(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the document ends e (positions behind a document's last token) with start < e <= stop."""


@dataclass(frozen=True)
class DocumentLayout:
    """The documents of a batch, position by position; both arrays have the shape of its inputs."""

    documents: NDArray[np.int32]
    """Number of the document that an input belongs to, from 0 in each sequence."""
    counted: NDArray[np.bool_]
    """Whether the position counts in the loss: its input and its target are of one document."""

    @property
    def loss_tokens(self) -> int:
        """Positions that count in the loss."""
        return int(np.count_nonzero(self.counted))

    @property
    def positions(self) -> NDArray[np.int32]:
        """Place of each input in its document, as far as the sequence shows it."""
        rows, length = self.documents.shape
        places = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
        begins = np.zeros((rows, length), dtype=np.int32)
        begins[:, 1:] = np.where(np.diff(self.documents, axis=1) > 0, places[:, 1:], 0)
        result: NDArray[np.int32] = places - np.maximum.accumulate(begins, axis=1)
        return result


def document_layout(stream: EndsStream, *, starts: Iterable[Any], length: int) -> DocumentLayout:
    """Return the layout of sequences of `length` inputs that begin at these positions of the stream."""
    begins = [int(start) for start in starts]
    marks = np.zeros((len(begins), length + 1), dtype=np.int32)
    for row, begin in enumerate(begins):
        marks[row, stream.ends_in(begin, begin + length).astype(np.int64) - begin] = 1
    documents = np.cumsum(marks[:, :-1], axis=1, dtype=np.int32)
    return DocumentLayout(documents, marks[:, 1:] == 0)
