"""A dataset of the Hugging Face hub: files of one commit, read as local ones are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final

from data_prep.hub import PinnedRepository, fetch, pin
from data_prep.sources.document import Document
from data_prep.sources.files import InputFile
from data_prep.sources.jsonl import JSONL_SUFFIXES, read_jsonl
from data_prep.sources.local import LocalFiles
from data_prep.sources.tables import TABLE_SUFFIXES, TableKind, read_table
from ledger.errors import ConfigError
from ledger.records.dataset import DatasetSource

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

    def identify(self, *, progress: Callable[[int], object] | None = None) -> DatasetSource:
        """Resolve the revision, fetch what is missing, and return the commit and the digests of the files."""
        local = self._local.identify(progress=progress)
        update = {
            "id": self._identifier,
            "requested_revision": self._revision,
            "resolved_revision": self._repository.commit,
        }
        return local.model_copy(update=update)

    def documents(self) -> Iterator[Document]:
        """Yield the documents of every file in order."""
        yield from self._local.documents()

    @cached_property
    def _repository(self) -> PinnedRepository:
        return pin("dataset", self._identifier, revision=self._revision)

    @cached_property
    def _local(self) -> LocalFiles:
        files = [InputFile(path, name) for name, path in fetch(self._repository, patterns=self._patterns)]
        for file in files:
            _require_readable(file)
        return LocalFiles(files, kind="huggingface", options={"column": self._column}, read=self._read)

    def _read(self, file: InputFile) -> Iterator[Document]:
        if file.kind in _LINES:
            return read_jsonl(file, column=self._column, id_column=self._id_column)
        kind: TableKind = "parquet" if file.kind in TABLE_SUFFIXES["parquet"] else "arrow"
        return read_table(file, kind=kind, column=self._column, id_column=self._id_column)


def _require_readable(file: InputFile) -> None:
    known = (*_LINES, *TABLE_SUFFIXES["parquet"], *TABLE_SUFFIXES["arrow"])
    if file.kind not in known:
        problem = f"the file {file.name!r} matches, but its name says no format that is read here"
        raise ConfigError(problem, place="source.files", expected=f"names that end in {', '.join(known)}")
