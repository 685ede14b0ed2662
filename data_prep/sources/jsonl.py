"""JSON Lines files: one object a line, the text under one of its keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from data_prep.sources.document import Document, document_from
from data_prep.sources.files import InputFile, decode, find_files, identify_files, read_lines
from ledger.errors import InvalidDocumentError
from ledger.records.dataset import DatasetSource

__all__ = ["JsonlFiles"]

_SUFFIXES: Final = (".jsonl", ".ndjson")


class JsonlFiles:
    """Documents from JSON Lines files; other keys than the column of the text are ignored."""

    def __init__(self, entries: Sequence[str], *, column: str) -> None:
        self._files = find_files(entries, suffixes=_SUFFIXES)
        self._column = column

    def identify(self, *, progress: Callable[[int], object] | None = None) -> DatasetSource:
        """Return the digests of the files."""
        return DatasetSource(
            kind="jsonl",
            id="jsonl",
            requested_revision=None,
            resolved_revision=None,
            options={"column": self._column},
            files=identify_files(self._files, progress=progress),
        )

    def documents(self) -> Iterator[Document]:
        """Yield the document of every line of every file in order."""
        for file in self._files:
            for number, line in enumerate(read_lines(file), start=1):
                place = f"line {number}"
                text = self._text(line, file=file, place=place)
                yield document_from(text, path=str(file.path), place=place)

    def _text(self, line: bytes, *, file: InputFile, place: str) -> str:
        record = _parse(decode(line, file=file, place=place), file=file, place=place)
        if self._column not in record:
            known = ", ".join(map(repr, record)) or "none"
            problem = f"the object has no key {self._column!r}; it has {known}"
            raise InvalidDocumentError(problem, path=file.path, place=place, advice="set source.column")
        text = record[self._column]
        if not isinstance(text, str):
            problem = f"the value of {self._column!r} is {json.dumps(text)[:40]}"
            raise InvalidDocumentError(problem, path=file.path, place=place, expected="a text")
        return text


def _parse(line: str, *, file: InputFile, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        problem = "the line is empty" if not line.strip() else f"the line is not JSON: {error}"
        raise InvalidDocumentError(
            problem, path=file.path, place=place, expected="one object a line"
        ) from error
    if not isinstance(record, dict):
        problem = "the line holds no object"
        raise InvalidDocumentError(problem, path=file.path, place=place, expected="one object a line")
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise ValueError("a key stands in one object twice")
    return record
