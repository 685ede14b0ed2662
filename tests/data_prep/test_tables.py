"""Tables and compressed files: every kind reads alike, and what is wrong is named with its place."""

from __future__ import annotations

import gzip
import importlib
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from data_prep.pipeline import prepare
from data_prep.sources.jsonl import JsonlFiles
from data_prep.sources.tables import TableFiles
from data_prep.sources.text import TextFiles
from ledger.errors import ConfigError, EvidenceMissingError, InvalidDocumentError, VerificationError
from tests.data_prep.corpus import configure, texts, write_jsonl

pa = importlib.import_module("pyarrow")
parquet = importlib.import_module("pyarrow.parquet")

TEXTS = texts(300)


def table(given: list[Any] | None = None, kind: Any = None, **columns: Any) -> Any:
    rows = TEXTS if given is None else given
    return pa.table(
        {"n": list(range(len(rows))), "text": pa.array(rows, type=kind or pa.string()), **columns}
    )


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        out.write(data)
    return bytes(sink.getvalue().to_pybytes())


def parquet_bytes(found: Any, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(found, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def arrow_bytes(found: Any, *, as_file: bool) -> bytes:
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_file if as_file else pa.ipc.new_stream)(sink, found.schema) as writer:
        writer.write_table(found, max_chunksize=70)
    return bytes(sink.getvalue().to_pybytes())


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": zstd,
}
KINDS = {
    "parquet": ("parquet", parquet_bytes(table(), row_group_size=100)),
    "stream": ("arrow", arrow_bytes(table(), as_file=False)),
    "file": ("arrow", arrow_bytes(table(), as_file=True)),
    "dictionary": ("arrow", arrow_bytes(table(kind=pa.dictionary(pa.int32(), pa.string())), as_file=False)),
    "large": ("parquet", parquet_bytes(table(kind=pa.large_string()))),
}


def read(path: Path, kind: str, **options) -> list[str]:
    return [document.text for document in open_table(path, kind, **options).documents()]


def open_table(path: Path, kind, *, column: str = "text", id_column: str | None = None) -> TableFiles:
    return TableFiles([str(path)], kind=kind, column=column, id_column=id_column)


@pytest.mark.parametrize(("name", "packed"), list(product(KINDS, PACKED)))
def test_a_table_of_any_kind_gives_its_texts_in_order(name, packed, tmp_path):
    kind, data = KINDS[name]
    path = tmp_path / f"a.{kind}{packed}"
    path.write_bytes(PACKED[packed](data))
    assert read(path, kind) == TEXTS


def test_zstd_lines_and_texts_read_as_plain_ones(tmp_path):
    plain = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    (tmp_path / "b.jsonl.zst").write_bytes(
        zstd(plain.read_bytes()[:5_000]) + zstd(plain.read_bytes()[5_000:])
    )
    (tmp_path / "c.txt.zst").write_bytes(zstd(b"one\n\ntwo"))
    found = JsonlFiles([str(tmp_path / "b.jsonl.zst")], column="text").documents()
    assert [document.text for document in found] == TEXTS
    lines = TextFiles([str(tmp_path / "c.txt.zst")], unit="line").documents()
    assert [document.text for document in lines] == ["one", "", "two"]


def test_a_folder_of_tables_is_read_in_order_with_every_compression(tmp_path):
    (tmp_path / "sub").mkdir()
    for name, rows in (("b.parquet", ["c"]), ("sub/d.parquet.zst", ["d"]), ("a.parquet.gz", ["a", "b"])):
        data = parquet_bytes(table(rows))
        (tmp_path / name).write_bytes(PACKED[Path(name).suffix if Path(name).suffix in PACKED else ""](data))
    assert read(tmp_path, "parquet") == ["a", "b", "c", "d"]


def test_the_same_texts_make_the_same_tokens_from_any_kind(tmp_path):
    lines = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    (tmp_path / "a.parquet").write_bytes(KINDS["parquet"][1])
    one = prepare(configure(lines), output=tmp_path / "one").manifest
    two = prepare(configure(tmp_path / "a.parquet", source__kind="parquet"), output=tmp_path / "two").manifest
    assert one.splits == two.splits


def test_a_row_is_named_by_its_number_and_id(tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(table(["a", None, "c"], id=["x", "y", "z"])))
    with pytest.raises(InvalidDocumentError, match=r"a\.parquet: row 1, id 'y': the value of 'text' is null"):
        read(tmp_path / "a.parquet", "parquet", id_column="id")


def test_a_column_name_that_stands_twice_is_refused(tmp_path):
    twice = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(twice))
    with pytest.raises(InvalidDocumentError, match=r"2 columns of the name 'text'; expected one"):
        read(tmp_path / "a.parquet", "parquet")


@pytest.mark.parametrize("cut", [8, 4])
def test_an_arrow_stream_cut_behind_a_batch_is_damaged(cut, tmp_path):
    data = KINDS["stream"][1]
    (tmp_path / "a.arrow").write_bytes(data[:-cut])
    with pytest.raises(VerificationError, match=r"a\.arrow: the Arrow data is damaged"):
        read(tmp_path / "a.arrow", "arrow")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"half \xed\xa0\xbd here", r"lone surrogate, U\+D83D, at byte 5"),
        (b"a\xffb", r"byte 1 .*0xFF.*UTF-8"),
    ],
)
def test_bytes_that_are_no_text_are_refused_with_their_position(bad, message, tmp_path):
    column = pa.array([b"fine", bad], type=pa.binary())
    unchecked = pa.Array.from_buffers(pa.string(), 2, column.buffers())
    (tmp_path / "a.arrow").write_bytes(arrow_bytes(pa.table({"text": unchecked}), as_file=False))
    with pytest.raises(InvalidDocumentError, match=rf"row 1: .*{message}"):
        read(tmp_path / "a.arrow", "arrow")


def test_a_column_that_is_absent_or_holds_no_text_is_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(table(["a"])))
    with pytest.raises(InvalidDocumentError, match=r"no column 'body'; it has 'n', 'text'.*source\.column"):
        read(tmp_path / "a.parquet", "parquet", column="body")
    with pytest.raises(InvalidDocumentError, match=r"'n' holds int64; expected texts"):
        read(tmp_path / "a.parquet", "parquet", column="n")
    with pytest.raises(InvalidDocumentError, match=r"no column 'key'.*source\.id_column"):
        read(tmp_path / "a.parquet", "parquet", id_column="key")


NO_TEXTS = {
    "binary": pa.array([b"a"]),
    "null": pa.nulls(1),
    "struct": pa.array([{"string": "a"}]),
    "fixed_size_list": pa.array([["a"]], pa.list_(pa.string(), 1)),
    "list_view": pa.array([["a"]], pa.list_view(pa.string())),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([1], ["a"]),
    "sparse_union": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array(["a"])], ["string"]),
}


@pytest.mark.parametrize("name", NO_TEXTS)
def test_a_column_of_another_type_is_never_called_damaged(name, tmp_path):
    (tmp_path / "a.arrow").write_bytes(arrow_bytes(pa.table({"text": NO_TEXTS[name]}), as_file=True))
    with pytest.raises(InvalidDocumentError, match=rf"'text' holds {name}.*expected texts"):
        read(tmp_path / "a.arrow", "arrow")


def test_every_type_of_text_is_read(tmp_path):
    plain = pa.array(["a", "b" * 40, "a"])
    kinds = (plain, plain.cast(pa.large_string()), plain.cast(pa.string_view()), plain.dictionary_encode())
    for values in (*kinds, plain.cast(pa.large_string()).dictionary_encode()):
        (tmp_path / "a.arrow").write_bytes(arrow_bytes(pa.table({"text": values}), as_file=True))
        assert read(tmp_path / "a.arrow", "arrow") == plain.to_pylist()


def test_zstd_frames_one_behind_the_other_are_read_to_the_end(tmp_path):
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    frames = [zstd(f"{number}\n".encode() * 2_000) for number in range(3)]
    (tmp_path / "a.txt.zst").write_bytes(skippable.join([b"", *frames, b""]))
    found = [document.text for document in TextFiles([str(tmp_path / "a.txt.zst")], unit="line").documents()]
    assert found == [str(number) for number in range(3) for _ in range(2_000)]


BAD = {
    "no table": b"this is no table, but it is long enough to be looked at",
    "empty": b"",
    "cut": KINDS["parquet"][1][:-30],
    "an Arrow file": KINDS["file"][1],
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_parquet_is_found(name, tmp_path):
    (tmp_path / "a.parquet").write_bytes(BAD[name])
    with pytest.raises(VerificationError, match=r"a\.parquet.*Parquet data is damaged"):
        read(tmp_path / "a.parquet", "parquet")


@pytest.mark.parametrize(
    "data", [KINDS["file"][1][:-30], KINDS["stream"][1][:3_000], b"nothing of the kind", b""]
)
def test_damaged_arrow_is_found(data, tmp_path):
    (tmp_path / "a.arrow").write_bytes(data)
    with pytest.raises(VerificationError, match=r"a\.arrow.*Arrow data is damaged"):
        read(tmp_path / "a.arrow", "arrow")


@pytest.mark.parametrize(
    "data", [zstd(b"x\n" * 5_000)[:-9], b"not zstd at all\n", b"", zstd(b"x\n") + b"garbage"]
)
def test_damaged_zstd_is_found(data, tmp_path):
    (tmp_path / "a.txt.zst").write_bytes(data)
    with pytest.raises(VerificationError, match=r"a\.txt\.zst.*Zstandard data is damaged"):
        list(TextFiles([str(tmp_path / "a.txt.zst")], unit="line").documents())


def test_a_table_named_twice_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet_bytes(table(["a"])))
    with pytest.raises(ConfigError, match="named twice"):
        TableFiles([str(tmp_path), str(tmp_path / "a.parquet")], kind="parquet", column="text")


def test_a_missing_library_says_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "a.parquet").write_bytes(KINDS["parquet"][1])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EvidenceMissingError, match=r"pip install 'pilot-ledger\[data\]'"):
        read(tmp_path / "a.parquet", "parquet")
