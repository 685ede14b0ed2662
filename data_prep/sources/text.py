"""Plain text files: each a document, or each of its lines one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal

from data_prep.sources.document import Document
from data_prep.sources.files import InputFile, decode, find_files, read_lines, read_whole
from data_prep.sources.local import LocalFiles

__all__ = ["TEXT_SUFFIXES", "TextFiles", "read_text"]

TEXT_SUFFIXES: Final = (".txt", ".md", ".rst")


class TextFiles(LocalFiles):
    """Documents from text files; nothing in a text is changed, and only the newline ends a line."""

    def __init__(self, entries: Sequence[str], *, unit: Literal["file", "line"]) -> None:
        files = find_files(entries, suffixes=TEXT_SUFFIXES)
        super().__init__(files, kind="text", options={"unit": unit}, read=partial(read_text, unit=unit))


def read_text(file: InputFile, *, unit: Literal["file", "line"]) -> Iterator[Document]:
    """Yield the documents of a text file.

    Raises:
        InvalidDocumentError: one is not UTF-8, or too long.
        VerificationError: compressed data is damaged.
    """
    if unit == "file":
        yield _document(read_whole(file), file=file, place="the whole file")
        return
    for number, line in enumerate(read_lines(file), start=1):
        yield _document(line, file=file, place=f"line {number}")


def _document(data: bytes, *, file: InputFile, place: str) -> Document:
    decode(data, file=file, place=place)
    return Document(data, str(file.path), place)
