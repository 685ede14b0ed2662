"""Files as a source: their digests identify it, and one reader turns each of them into documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data_prep.sources.document import Document
from data_prep.sources.files import InputFile, identify_files
from data_prep.sources.readings import Reading, same_bytes, same_texts
from ledger.errors import InvalidDocumentError, VerificationError
from ledger.records.dataset import DatasetSource, SourceFile
from ledger.records.fields import Json

__all__ = ["LocalFiles", "Reader", "misread_files"]

Reader = Callable[[InputFile], Iterator[Document]]
"""Yields the documents of one file in order."""


class LocalFiles:
    """Documents from files in a fixed order."""

    def __init__(
        self, files: Sequence[InputFile], *, kind: str, options: dict[str, Json], read: Reader
    ) -> None:
        self._files = files
        self._kind = kind
        self._options = options
        self._read = read

    def identify(self, *, progress: Callable[[int], object] | None = None) -> DatasetSource:
        """Return the digests of the files."""
        return DatasetSource(
            kind=self._kind,
            id=self._kind,
            requested_revision=None,
            resolved_revision=None,
            options=self._options,
            files=identify_files(self._files, progress=progress),
        )

    def misread(self, now: DatasetSource) -> list[str]:
        """Return the names of the files that gave something else."""
        return misread_files(self._files, now=now.files, read=self._read)

    def documents(self) -> Iterator[Document]:
        """Yield the documents of every file in order."""
        for file in self._files:
            yield from self._read(file)

    def local_files(self) -> list[tuple[str, Path]]:
        """Return name and path of every file."""
        return [(file.name, file.path) for file in self._files]


def misread_files(files: Sequence[InputFile], *, now: Sequence[SourceFile], read: Reader) -> list[str]:
    """Return the names of files that gave, in one of their readings, something else than they hold now."""
    return [
        file.name
        for file, identity in zip(files, now, strict=True)
        if not all(_is_true(reading, file=file, now=identity, read=read) for reading in file.readings)
    ]


def _is_true(reading: Reading, *, file: InputFile, now: SourceFile, read: Reader) -> bool:
    if not reading.is_of_texts:
        return same_bytes(reading, path=file.path, now=now)
    if reading.is_of(file.path):
        return True
    again = (document.data for document in read(InputFile(file.path, file.name)))
    try:
        return same_texts(reading, again)
    except (InvalidDocumentError, VerificationError):
        return False  # what was read had no such document
