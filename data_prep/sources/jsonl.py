"""JSON Lines files: one object a line, the text under one of its keys."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from data_prep.sources.document import Document, document_from
from data_prep.sources.files import InputFile, decode, find_files, read_lines
from data_prep.sources.local import LocalFiles
from data_prep.wording import listed
from ledger.errors import InvalidDocumentError
from ledger.storage.hints import describe_foreign_bytes

__all__ = ["JSONL_SUFFIXES", "JsonlFiles", "read_jsonl"]

JSONL_SUFFIXES: Final = (".jsonl", ".ndjson")


class JsonlFiles(LocalFiles):
    """Documents from JSON Lines files; other keys than the column of the text are ignored."""

    def __init__(self, entries: Sequence[str], *, column: str, id_column: str | None = None) -> None:
        files = find_files(entries, suffixes=JSONL_SUFFIXES)
        read = partial(read_jsonl, column=column, id_column=id_column)
        super().__init__(files, kind="jsonl", options={"column": column}, read=read)


def read_jsonl(file: InputFile, *, column: str, id_column: str | None) -> Iterator[Document]:
    """Yield the document of every line; its place names the value of `id_column` too, if there is one.

    Raises:
        InvalidDocumentError: a line is not one object with a text in that column.
        VerificationError: compressed data is damaged.
    """
    for number, line in enumerate(read_lines(file), start=1):
        place = f"line {number}"
        record = _parse(decode(line, file=file, place=place), file=file, place=place)
        if id_column is not None:
            place += f", {id_column} {_value(record, id_column, file=file, place=place)!r}"
        text = _value(record, column, file=file, place=place)
        if not isinstance(text, str):
            problem = f"the value of {column!r} is {json.dumps(text)[:40]}"
            raise InvalidDocumentError(problem, path=file.path, place=place, expected="a text")
        yield document_from(text, path=str(file.path), place=place)


def _value(record: dict[str, Any], column: str, *, file: InputFile, place: str) -> Any:
    if column not in record:
        known = listed(map(repr, record), limit=20, separator=", ") or "none"
        problem = f"the object has no key {column!r}; it has {known}"
        advice = "set source.column (and source.id_column)"
        raise InvalidDocumentError(problem, path=file.path, place=place, advice=advice)
    return record[column]


def _parse(line: str, *, file: InputFile, place: str) -> dict[str, Any]:
    try:
        record = json.loads(line, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        problem = "the line is empty" if not line.strip() else f"the line is not JSON: {error}"
        advice = describe_foreign_bytes(line[:4_096].encode())
        raise InvalidDocumentError(
            problem, path=file.path, place=place, expected="one object a line", advice=advice
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
