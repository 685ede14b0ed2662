"""What a source is, and the one form in which it hands out a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ledger.errors import InvalidDocumentError

if TYPE_CHECKING:  # what a worker process loads stays small
    from ledger.records.dataset import DatasetSource

__all__ = ["Document", "Source", "document_from", "document_from_bytes"]

_ADVICE = "repair or remove that document"


@dataclass(frozen=True, slots=True)
class Document:
    """One text, exactly as its source holds it, and where it stands there."""

    data: bytes
    """The text in UTF-8, which every memory bound counts."""
    path: str
    place: str

    @property
    def text(self) -> str:
        """The text as characters."""
        return self.data.decode()

    @property
    def bytes(self) -> int:
        """Length in UTF-8."""
        return len(self.data)


class Source(Protocol):
    """Documents in a fixed order, and an identity that changes when any of them does."""

    def identify(self, *, progress: Callable[[int], object] | None = None) -> DatasetSource:
        """Return what identifies the source now; `progress` is told of bytes as they are read."""

    def misread(self, now: DatasetSource) -> list[str]:
        """Return the names of files that gave other content, when documents were read, than `identify` found now."""

    def documents(self) -> Iterator[Document]:
        """Yield every document, from the first one at each call."""

    def local_files(self) -> list[tuple[str, Path]]:
        """Return name and path of every local file that decides the documents, in order; none is read."""


def document_from(text: str, *, path: str, place: str) -> Document:
    """Return a document.

    Raises:
        InvalidDocumentError: the text holds a lone surrogate, which no encoding of Unicode can store.
    """
    try:
        return Document(text.encode(), path, place)
    except UnicodeEncodeError as error:
        problem = (
            f"the text holds a lone surrogate, U+{ord(text[error.start]):04X}, at character {error.start}"
        )
        expected = "text that UTF-8 can store"
        raise InvalidDocumentError(
            problem, path=path, place=place, expected=expected, advice=_ADVICE
        ) from error


def document_from_bytes(data: bytes, *, path: str, place: str) -> Document:
    """Return a document from bytes that claim to be UTF-8.

    Raises:
        InvalidDocumentError: they are not; an encoded surrogate is not either. The message names the byte.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} of the text (0x{data[error.start]:02X}) is not UTF-8"
        code = (
            data[error.start : error.start + 3].decode("utf-8", "surrogatepass")
            if _is_surrogate(error)
            else ""
        )
        if code:
            problem = f"the text holds a lone surrogate, U+{ord(code):04X}, at byte {error.start}"
        raise InvalidDocumentError(
            problem, path=path, place=place, expected="UTF-8 text", advice=_ADVICE
        ) from error
    return Document(data, path, place)


def _is_surrogate(error: UnicodeDecodeError) -> bool:
    """Tell whether three bytes stand there that would encode a surrogate (U+D800 to U+DFFF)."""
    found = error.object[error.start : error.start + 3]
    return len(found) == 3 and found[0] == 0xED and 0xA0 <= found[1] <= 0xBF and 0x80 <= found[2] <= 0xBF
