"""Parquet and Arrow files: one row a document, the text in one of the columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal

from data_prep.columnar import arrow_rows, parquet_rows
from data_prep.sources.document import Document, document_from_bytes
from data_prep.sources.files import InputFile, find_files, opened_for_seeking
from data_prep.sources.local import LocalFiles
from ledger.errors import InvalidDocumentError

__all__ = ["TABLE_SUFFIXES", "TableFiles", "TableKind", "read_table"]

TableKind = Literal["parquet", "arrow"]

TABLE_SUFFIXES: Final[dict[TableKind, tuple[str, ...]]] = {
    "parquet": (".parquet",),
    "arrow": (".arrow", ".feather", ".ipc"),
}


class TableFiles(LocalFiles):
    """Documents from tables; other columns than that of the text are not read."""

    def __init__(
        self, entries: Sequence[str], *, kind: TableKind, column: str, id_column: str | None = None
    ) -> None:
        files = find_files(entries, suffixes=TABLE_SUFFIXES[kind])
        read = partial(read_table, kind=kind, column=column, id_column=id_column)
        super().__init__(files, kind=kind, options={"column": column}, read=read)


def read_table(file: InputFile, *, kind: TableKind, column: str, id_column: str | None) -> Iterator[Document]:
    """Yield the document of every row; its place names the value of `id_column` too, if there is one.

    Raises:
        InvalidDocumentError: there is no such column of text, or a row holds none.
        VerificationError: the file is damaged.
    """
    path = str(file.path)
    rows = parquet_rows if kind == "parquet" else arrow_rows
    with opened_for_seeking(file) as (stream, reading):
        found = rows(stream, column=column, id_column=id_column, path=path)
        for number, (data, identifier) in enumerate(found):
            place = f"row {number}" if id_column is None else f"row {number}, {id_column} {identifier!r}"
            if data is None:
                problem = f"the value of {column!r} is null"
                raise InvalidDocumentError(problem, path=path, place=place, expected="a text")
            if reading is not None:
                reading.add_text(data)
            yield document_from_bytes(data, path=path, place=place)
