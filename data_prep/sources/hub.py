"""A dataset of the Hugging Face hub: files of one commit, each fetched when it is its turn, read as local ones are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

from data_prep.hub import ListedFile, PinnedRepository, fetch_file, find, pin
from data_prep.sources.document import Document
from data_prep.sources.files import InputFile
from data_prep.sources.jsonl import JSONL_SUFFIXES, read_jsonl
from data_prep.sources.local import misread_files
from data_prep.sources.tables import TABLE_SUFFIXES, TableKind, read_table
from ledger.errors import ConfigError, VerificationError
from ledger.records.dataset import DatasetSource, SourceFile
from ledger.storage.digests import hash_file
from ledger.storage.files import real_path

__all__ = ["HubDataset"]

_LINES: Final = (*JSONL_SUFFIXES, ".json")


class HubDataset:
    """Documents from the files of a dataset that match patterns, in the order of their names."""

    def __init__(
        self, identifier: str, *, revision: str, patterns: Sequence[str], column: str, id_column: str | None
    ) -> None:
        self._identifier = identifier
        self._revision = revision
        self._patterns = patterns
        self._column = column
        self._id_column = id_column
        self._fetched: dict[str, InputFile] = {}

    def identify(self, *, progress: Callable[[int], object] | None = None) -> DatasetSource:
        """Resolve the revision and return the commit and the digests of the files.

        Those that the hub lists are taken from there and checked when the file is fetched; a file without one is
        fetched now.
        """
        return DatasetSource(
            kind="huggingface",
            id=self._identifier,
            requested_revision=self._revision,
            resolved_revision=self._repository.commit,
            options={"column": self._column},
            files=[self._identify(file, progress=progress) for file in self._files],
        )

    def misread(self, now: DatasetSource) -> list[str]:
        """Return the names of the fetched files that gave something else."""
        fetched = [file for file in now.files if file.name in self._fetched]
        files = [self._fetched[file.name] for file in fetched]
        return misread_files(files, now=fetched, read=self._read)

    def documents(self) -> Iterator[Document]:
        """Yield the documents of every file in order; a file is fetched when those before it are read."""
        for file in self._files:
            yield from self._read(self._fetch(file))

    def local_files(self) -> list[tuple[str, Path]]:
        """Return nothing: what the hub holds is named by its revision."""
        return []

    @cached_property
    def _repository(self) -> PinnedRepository:
        return pin("dataset", self._identifier, revision=self._revision)

    @cached_property
    def _files(self) -> list[ListedFile]:
        files = find(self._repository, patterns=self._patterns)
        for file in files:
            _require_readable(file.name)
        return files

    def _identify(self, file: ListedFile, *, progress: Callable[[int], object] | None) -> SourceFile:
        if file.name not in self._fetched and file.sha256 is not None and file.bytes is not None:
            return SourceFile(name=file.name, bytes=file.bytes, sha256=file.sha256)
        digest = hash_file(real_path(self._fetch(file).path), progress=progress)
        return SourceFile(name=file.name, bytes=digest.bytes, sha256=digest.sha256)

    def _fetch(self, file: ListedFile) -> InputFile:
        """Return a file; the first time, insist that it is the one that the hub lists."""
        if file.name not in self._fetched:
            path = fetch_file(self._repository, name=file.name)
            if file.sha256 is not None and (found := hash_file(real_path(path)).sha256) != file.sha256:
                problem = f"the SHA-256 of the fetched file is {found}"
                advice = "remove it from the cache of the hub, then run this again"
                raise VerificationError(problem, path=path, expected=file.sha256, advice=advice)
            self._fetched[file.name] = InputFile(path, file.name)
        return self._fetched[file.name]

    def _read(self, file: InputFile) -> Iterator[Document]:
        if file.kind in _LINES:
            return read_jsonl(file, column=self._column, id_column=self._id_column)
        kind: TableKind = "parquet" if file.kind in TABLE_SUFFIXES["parquet"] else "arrow"
        return read_table(file, kind=kind, column=self._column, id_column=self._id_column)


def _require_readable(name: str) -> None:
    known = (*_LINES, *TABLE_SUFFIXES["parquet"], *TABLE_SUFFIXES["arrow"])
    if InputFile(Path(name), name).kind not in known:
        problem = f"the file {name!r} matches, but its name says no format that is read here"
        raise ConfigError(problem, place="source.files", expected=f"names that end in {', '.join(known)}")
