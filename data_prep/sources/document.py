"""What a source is, and the one form in which it hands out a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ledger.errors import InvalidDocumentError
from ledger.records.dataset import DatasetSource

__all__ = ["Document", "Source", "document_from"]


@dataclass(frozen=True, slots=True)
class Document:
    """One text, exactly as its source holds it, and where it stands there."""

    text: str
    path: str
    place: str
    bytes: int
    """Length in UTF-8."""


class Source(Protocol):
    """Documents in a fixed order, and an identity that changes when any of them does."""

    def identify(self, *, progress: Callable[[int], object] | None = None) -> DatasetSource:
        """Return what identifies the source now; `progress` is told of bytes as they are read."""

    def documents(self) -> Iterator[Document]:
        """Yield every document, from the first one at each call."""


def document_from(text: str, *, path: str, place: str) -> Document:
    """Return a document.

    Raises:
        InvalidDocumentError: the text holds a lone surrogate, which no encoding of Unicode can store.
    """
    try:
        return Document(text, path, place, len(text.encode()))
    except UnicodeEncodeError as error:
        problem = (
            f"the text holds a lone surrogate, U+{ord(text[error.start]):04X}, at character {error.start}"
        )
        expected = "text that UTF-8 can store"
        raise InvalidDocumentError(
            problem, path=path, place=place, expected=expected, advice="repair or remove that document"
        ) from error
