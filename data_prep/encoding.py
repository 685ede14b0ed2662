"""What a worker does: turns a batch of documents into the ids that are stored, whatever library makes them.

Every id is checked while it is wide, before the cast to the narrow type that is stored, where it could wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from data_prep.sources.document import Document
from ledger.errors import InvalidDocumentError

if TYPE_CHECKING:  # what a worker process loads stays small
    from ledger.records.dataset import TokenDtype

__all__ = ["BackEnd", "BackEndName", "EncodedBatch", "Encoder", "EncodingRules", "nothing_encoded"]

BackEndName = Literal["tokenizers", "tiktoken"]


@dataclass(frozen=True)
class EncodedBatch:
    """The ids of documents, one behind the other, end-of-text included."""

    ids: NDArray[Any]
    lengths: list[int]
    """Tokens of every document."""


class BackEnd(Protocol):
    """A library with a tokenizer loaded."""

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[int] | NDArray[Any]]:
        """Return the ids of every text, nothing added and nothing cut; special tokens in text stay text."""


@dataclass(frozen=True)
class EncodingRules:
    """What every document's ids must be."""

    vocabulary: int
    eos_id: int
    eos_token: str
    dtype: TokenDtype
    path: str
    """The tokenizer's name in messages."""


class Encoder:
    """A back end and the rules that its ids are checked by."""

    def __init__(self, backend: BackEnd, *, rules: EncodingRules) -> None:
        self._backend = backend
        self._rules = rules

    def encode(self, documents: Sequence[Document]) -> EncodedBatch:
        """Return the ids of every document, each ended by end-of-text.

        Raises:
            InvalidDocumentError: the tokenizer fails on a text, or makes an id outside its vocabulary, or end-of-text
                out of text.
        """
        eos = np.array([self._rules.eos_id], dtype=np.uint32)
        parts: list[NDArray[Any]] = []
        for ids in self._encode(documents):
            parts += (ids if isinstance(ids, np.ndarray) else np.array(ids, dtype=np.int64), eos)
        lengths = [part.size + 1 for part in parts[::2]]
        wide = np.concatenate(parts)
        self._check(wide, lengths=lengths, documents=documents)
        return EncodedBatch(wide.astype(self._rules.dtype), lengths)

    def _encode(self, documents: Sequence[Document]) -> Sequence[Sequence[int] | NDArray[Any]]:
        try:
            return self._backend.encode([document.text for document in documents])
        except InvalidDocumentError as error:
            if len(documents) == 1:
                problem = f"{self._rules.path}: {error.problem}"
                raise InvalidDocumentError(
                    problem, path=documents[0].path, place=documents[0].place, advice=error.advice
                ) from error
        return [self._encode([document])[0] for document in documents]  # to find out on which one

    def _check(self, wide: NDArray[Any], *, lengths: list[int], documents: Sequence[Document]) -> None:
        rules = self._rules
        outside = (wide < 0) | (wide >= rules.vocabulary)
        if outside.any():
            index = int(np.flatnonzero(outside)[0])
            problem = f"{rules.path} makes the id {int(wide[index])} of this document"
            _refuse(problem, _document_at(index, lengths, documents), f"ids below {rules.vocabulary}", None)
        is_eos = wide == rules.eos_id
        if int(np.count_nonzero(is_eos)) != len(lengths):
            is_eos[np.cumsum(lengths) - 1] = False
            index = int(np.flatnonzero(is_eos)[0])
            problem = f"{rules.path} makes the end-of-text id of text inside this document"
            advice = (
                f"declare {rules.eos_token!r} as a special token in it, so that its name in text stays text"
            )
            _refuse(problem, _document_at(index, lengths, documents), None, advice)


def nothing_encoded() -> EncodedBatch:
    """Return the ids of no document."""
    return EncodedBatch(np.empty(0, dtype=np.uint16), [])


def _document_at(index: int, lengths: list[int], documents: Sequence[Document]) -> Document:
    return documents[int(np.searchsorted(np.cumsum(lengths), index, "right"))]


def _refuse(problem: str, document: Document, expected: str | None, advice: str | None) -> NoReturn:
    raise InvalidDocumentError(
        problem, path=document.path, place=document.place, expected=expected, advice=advice
    )
