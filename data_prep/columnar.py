"""Reads Parquet and Arrow tables, and Zstandard streams, with `pyarrow`; no other module loads it.

Tables are read in batches of bounded rows, one column or two, without threads: the order is that of the file.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator, Sequence
from typing import IO, Any, Final, cast

from data_prep.wording import listed
from ledger.errors import EvidenceMissingError, InvalidDocumentError, VerificationError

__all__ = ["arrow_rows", "parquet_rows", "zstd_stream"]

_BATCH_ROWS: Final = 256
_BUFFER_BYTES: Final = 2**20
_FILE_MAGIC: Final = b"ARROW1"
_STREAM_END: Final = b"\xff\xff\xff\xff\0\0\0\0"

Row = tuple[bytes | None, object]
"""The bytes of a text, null where the table holds none, and the value of the id column."""


def zstd_stream(raw: IO[bytes]) -> IO[bytes]:
    """Return the decompressed content of a Zstandard stream; a cut or damaged one raises OSError when read."""
    library = _require_library()
    source = library.PythonFile(raw, mode="r")
    return cast("IO[bytes]", io.BufferedReader(library.CompressedInputStream(source, "zstd"), _BUFFER_BYTES))


def parquet_rows(stream: IO[bytes], *, column: str, id_column: str | None, path: str) -> Iterator[Row]:
    """Yield the rows of a Parquet file; raises what `arrow_rows` raises."""
    library = _require_library()
    parquet = importlib.import_module("pyarrow.parquet")
    with _explained(library, path=path, kind="Parquet"):
        file = parquet.ParquetFile(stream, pre_buffer=False, page_checksum_verification=True)
        columns = _columns(file.schema_arrow, column=column, id_column=id_column, path=path)
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns, use_threads=False):
            yield from _rows(batch, column=column, id_column=id_column)


def arrow_rows(stream: IO[bytes], *, column: str, id_column: str | None, path: str) -> Iterator[Row]:
    """Yield the rows of an Arrow file or stream.

    Raises:
        InvalidDocumentError: it has no such column, or the column holds no text.
        VerificationError: the file is damaged, or of another kind.
    """
    library = _require_library()
    ipc = importlib.import_module("pyarrow.ipc")
    is_file = stream.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    stream.seek(0)
    with _explained(library, path=path, kind="Arrow"):
        reader = (ipc.open_file if is_file else ipc.open_stream)(stream)
        _columns(reader.schema, column=column, id_column=id_column, path=path)
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield from _rows(batch.slice(start, _BATCH_ROWS), column=column, id_column=id_column)
        if not is_file and not _is_ended(stream):
            raise ValueError("the stream has no end: what stood behind its last batch is missing")


def _columns(schema: Any, *, column: str, id_column: str | None, path: str) -> list[str]:
    wanted = [column] if id_column is None else [column, id_column]
    for name in wanted:
        advice = "set source.column" if name == column else "set source.id_column"
        if name not in schema.names:
            known = listed(map(repr, schema.names), limit=20, separator=", ") or "none"
            problem = f"the table has no column {name!r}; it has {known}"
            raise InvalidDocumentError(problem, path=path, advice=advice)
        if schema.names.count(name) > 1:
            problem = f"the table has {schema.names.count(name)} columns of the name {name!r}"
            raise InvalidDocumentError(problem, path=path, expected="one", advice=advice)
    kind = schema.field(column).type
    if not _is_text(kind):
        problem = f"the column {column!r} holds {kind}"
        raise InvalidDocumentError(problem, path=path, expected="texts", advice="set source.column")
    return wanted


def _is_text(kind: Any) -> bool:
    types = _require_library().types
    values = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(values) or types.is_large_string(values) or types.is_string_view(values))


def _is_ended(stream: IO[bytes]) -> bool:
    """Tell whether a stream ends as every writer ends it; cut between two batches it reads as a shorter one."""
    stream.seek(-len(_STREAM_END), io.SEEK_END)
    return stream.read() == _STREAM_END


def _rows(batch: Any, *, column: str, id_column: str | None) -> Iterator[Row]:
    library = _require_library()
    texts: Sequence[bytes | None] = _plain(batch.column(column)).cast(library.large_binary()).to_pylist()
    ids = [None] * len(texts) if id_column is None else batch.column(id_column).to_pylist()
    yield from zip(texts, ids, strict=True)


def _plain(values: Any) -> Any:
    """Return a column without dictionary encoding."""
    return values.dictionary_decode() if hasattr(values, "dictionary_decode") else values


class _explained:  # noqa: N801 - reads as a statement
    """Says of what `pyarrow` refuses that the file is damaged."""

    def __init__(self, library: Any, *, path: str, kind: str) -> None:
        self._errors = (library.ArrowException, OSError, ValueError)
        self._path = path
        self._kind = kind

    def __enter__(self) -> None:
        """Begin to watch."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and error.errno is not None:
            return  # the system refused; the bytes may be fine
        if isinstance(error, self._errors):
            problem = f"the {self._kind} data is damaged: {str(error).splitlines()[0]}"
            raise VerificationError(problem, path=self._path, advice="fetch the file again") from error


def _require_library() -> Any:
    """Load the optional library; this is the one place that does."""
    try:
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        problem = "reading Parquet, Arrow and .zst files takes the library `pyarrow`, which is not installed"
        raise EvidenceMissingError(problem, advice="pip install 'pilot-ledger[data]'") from error
