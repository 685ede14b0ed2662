"""Files as a source: their digests identify it, and one reader turns each of them into documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data_prep.sources.document import Document
from data_prep.sources.files import InputFile, identify_files
from ledger.records.dataset import DatasetSource
from ledger.records.fields import Json

__all__ = ["LocalFiles", "Reader"]

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

    def documents(self) -> Iterator[Document]:
        """Yield the documents of every file in order."""
        for file in self._files:
            yield from self._read(file)

    def local_files(self) -> list[tuple[str, Path]]:
        """Return name and path of every file."""
        return [(file.name, file.path) for file in self._files]
