"""Plain text files: each a document, or each of its lines one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from data_prep.sources.document import Document, document_from
from data_prep.sources.files import InputFile, decode, find_files, identify_files, read_lines, read_whole
from ledger.records.dataset import DatasetSource

__all__ = ["TextFiles"]

_SUFFIXES: Final = (".txt", ".md", ".rst")


class TextFiles:
    """Documents from text files; nothing in a text is changed, and only the newline ends a line."""

    def __init__(self, entries: Sequence[str], *, unit: Literal["file", "line"]) -> None:
        self._files = find_files(entries, suffixes=_SUFFIXES)
        self._unit = unit

    def identify(self, *, progress: Callable[[int], object] | None = None) -> DatasetSource:
        """Return the digests of the files."""
        return DatasetSource(
            kind="text",
            id="text",
            requested_revision=None,
            resolved_revision=None,
            options={"unit": self._unit},
            files=identify_files(self._files, progress=progress),
        )

    def documents(self) -> Iterator[Document]:
        """Yield the documents of every file in order."""
        for file in self._files:
            yield from self._lines(file) if self._unit == "line" else self._whole(file)

    def _lines(self, file: InputFile) -> Iterator[Document]:
        for number, line in enumerate(read_lines(file), start=1):
            place = f"line {number}"
            yield document_from(decode(line, file=file, place=place), path=str(file.path), place=place)

    def _whole(self, file: InputFile) -> Iterator[Document]:
        place = "the whole file"
        text = decode(read_whole(file), file=file, place=place)
        yield document_from(text, path=str(file.path), place=place)
