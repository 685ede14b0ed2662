"""Every way in which an array file can be wrong has its verdict; NumPy's own reader accepts many of them."""

from __future__ import annotations

import io
import os
import pickle
import struct

import numpy as np
import pytest

from ledger.dataset.npy import NpyHeader, array_bytes, read_array, read_header, read_items, write_array
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    NewerVersionError,
    StorageError,
    UnsafeError,
    VerificationError,
)

COR, INV, UNS, REF, IO = (
    VerificationError,
    InvalidDocumentError,
    NewerVersionError,
    UnsafeError,
    StorageError,
)
TOKENS = np.arange(10, dtype=np.uint16)
GOOD = array_bytes(TOKENS, dtype="uint16")


def with_header(text: bytes, *, data: bytes = TOKENS.tobytes(), version: bytes = b"\x01\x00") -> bytes:
    """Return a file with this header text, padded as NumPy pads."""
    size = "<H" if version == b"\x01\x00" else "<I"
    prefix = 6 + 2 + struct.calcsize(size)
    padded = text + b" " * (-(prefix + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY" + version + struct.pack(size, len(padded)) + padded + data


def header(descr: str = "'<u2'", order: str = "False", shape: str = "(10,)") -> bytes:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()


def saved(array: np.ndarray, **options) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


class Exploding:
    def __reduce__(self):
        return (os.system, ("touch /tmp/must-not-exist",))


BAD = {
    "N01 empty": (b"", COR),
    "N02 magic only": (b"\x93NUMPY", COR),
    "N02 part of the magic": (b"\x93NUM", COR),
    "N04 version 4.0": (b"\x93NUMPY\x04\x00" + GOOD[8:], UNS),
    "N05 version 2.0": (with_header(header(), version=b"\x02\x00"), INV),
    "N05 version 3.0": (with_header(header(), version=b"\x03\x00"), INV),
    "N06 header length past the end": (GOOD[:8] + b"\xff\xff" + GOOD[10:], COR),
    "N06 cut in the header": (GOOD[:60], COR),
    "N08 header is a list": (with_header(b"['<u2', False, (10,)]"), INV),
    "N08 header calls code": (with_header(b"__import__('os').system('true')"), INV),
    "N08 header of parentheses": (with_header(b"(" * 3_000), INV),
    "N08 header with NUL": (with_header(header().replace(b" }", b"\0}")), INV),
    "N08 header not ASCII": (with_header(header().replace(b"'<u2'", b"'<u\xc2\xb2'")), INV),
    "N09 extra key": (with_header(header().replace(b" }", b" 'x': 1, }")), INV),
    "N09 missing key": (with_header(b"{'descr': '<u2', 'shape': (10,), }"), INV),
    "N10 duplicate shape": (with_header(header().replace(b" }", b" 'shape': (10,), }")), INV),
    "N12 structured with objects": (with_header(header("[('a', '<u2'), ('b', '|O')]")), REF),
    "N12 objects": (saved(np.array([{}], dtype=object), allow_pickle=True), REF),
    "N13 structured": (with_header(header("[('a', '<u2')]")), INV),
    "N14 void": (with_header(header("'|V2'")), INV),
    "N14 text": (with_header(header("'<U1'")), INV),
    "N14 datetime": (with_header(header("'<M8[ns]'")), INV),
    "N14 complex": (with_header(header("'<c8'")), INV),
    "N14 signed": (saved(np.arange(10, dtype=np.int16)), INV),
    "N14 one byte": (saved(np.arange(10, dtype=np.uint8)), INV),
    "N16 big-endian": (saved(np.arange(10, dtype=">u4")), INV),
    "N17 native spelling": (with_header(header("'=u2'")), INV),
    "N17 no byte order": (with_header(header("'u2'")), INV),
    "N18 fortran order": (with_header(header(order="True")), INV),
    "N18 fortran order 1": (with_header(header(order="1")), INV),
    "N20 negative": (with_header(header(shape="(-10,)")), INV),
    "N20 two negatives": (with_header(header(shape="(-5, -2)")), INV),
    "N21 overflow": (with_header(header(shape=f"({2**62}, 8)")), INV),
    "N22 4 EiB": (with_header(header(shape=f"({2**60},)")), INV),
    "N22 5,000 digits": (with_header(header(shape=f"({'9' * 2_000},)")), INV),
    "N24 no dimension": (saved(np.array(1, dtype=np.uint16)), INV),
    "N24 no element": (saved(np.array([], dtype=np.uint16)), INV),
    "N25 65 dimensions": (with_header(header(shape="(" + "1, " * 65 + ")")), INV),
    "two dimensions": (saved(np.zeros((2, 5), dtype=np.uint16)), INV),
    "leading zeros": (with_header(header(shape="(010,)")), INV),
    "N26 one byte short": (GOOD[:-1], COR),
    "N26 half": (GOOD[:-10], COR),
    "trailing byte": (GOOD + b"\0", COR),
    "N28 two arrays": (GOOD + GOOD, COR),
    "N29 pickle": (pickle.dumps(Exploding()), REF),
    "N30 zip": (b"PK\x03\x04" + b"\0" * 200, INV),
    "gzip": (b"\x1f\x8b\x08" + b"\0" * 200, INV),
    "text": (b"[1, 2, 3]\n", INV),
    "N32 Python 2": (with_header(header(shape="(10L,)")), INV),
    "N33 unpadded": (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header()) + 1) + header() + b"\n", INV),
    "N33 padded with tabs": (GOOD[:128].replace(b"  ", b"\t\t") + GOOD[128:], INV),
    "N33 no newline": (GOOD[:127] + b" " + GOOD[128:], INV),
    "N33 padded to more": (with_header(header() + b" " * 64), INV),
    "N36 zeros": (b"\0" * len(GOOD), COR),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_array_file_has_its_verdict(name, tmp_path):
    data, verdict = BAD[name]
    path = tmp_path / "train-00000.npy"
    path.write_bytes(data)
    with pytest.raises(verdict) as caught:
        read_array(path)
    assert type(caught.value) is verdict
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
@pytest.mark.parametrize("count", [1, 7, 10_000])
def test_the_writer_writes_what_numpy_writes(dtype, count, tmp_path):
    values = np.arange(count, dtype=dtype)
    size, _ = write_array(tmp_path / "a.npy", values, dtype=dtype)
    assert (tmp_path / "a.npy").read_bytes() == saved(values)
    assert size == (tmp_path / "a.npy").stat().st_size
    assert np.array_equal(read_array(tmp_path / "a.npy"), values)


def test_the_writer_never_casts(tmp_path):
    with pytest.raises(ValueError, match="int64"):
        write_array(tmp_path / "a.npy", np.array([70_000]), dtype="uint16")


def test_the_writer_replaces_nothing(tmp_path):
    write_array(tmp_path / "a.npy", TOKENS, dtype="uint16")
    with pytest.raises(StorageError):
        write_array(tmp_path / "a.npy", TOKENS, dtype="uint16")


def test_a_range_of_elements_is_read_alone(tmp_path):
    write_array(tmp_path / "a.npy", TOKENS, dtype="uint16")
    found = read_items(tmp_path / "a.npy", header=NpyHeader("uint16", 10), start=3, count=4)
    assert found.tolist() == [3, 4, 5, 6]


def test_a_file_that_was_cut_since_its_header_was_read_is_an_io_error(tmp_path):
    path = tmp_path / "a.npy"
    write_array(path, TOKENS, dtype="uint16")
    known = read_header(path)
    os.truncate(path, 140)
    with pytest.raises(IO, match="cut while it was being read"):
        read_items(path, header=known, start=0, count=10)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "folder.npy").mkdir()
    (tmp_path / "real.npy").write_bytes(GOOD)
    (tmp_path / "link.npy").symlink_to(tmp_path / "real.npy")
    for name in ("pipe.npy", "folder.npy", "link.npy"):
        with pytest.raises(REF):
            read_header(tmp_path / name)


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(EvidenceMissingError):
        read_header(tmp_path / "a.npy")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_permission_is_an_io_error(tmp_path):
    (tmp_path / "a.npy").write_bytes(GOOD)
    (tmp_path / "a.npy").chmod(0)
    with pytest.raises(IO):
        read_header(tmp_path / "a.npy")
