from __future__ import annotations

import errno
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.errors import InvalidDocumentError, StorageError
from ledger.storage.digests import hash_file, tensor_table_sha256
from ledger.storage.filesystem import FileSystem
from ledger.storage.safetensors import (
    TensorInfo,
    nonfinite_tensors,
    read_header,
    read_numbers,
    scan_tensors,
    sync_and_hash,
)

HEADER: dict[str, Any] = {
    "__metadata__": {"ledger": '{"step":1}'},
    "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    "b": {"dtype": "BF16", "shape": [], "data_offsets": [16, 18]},
    "empty": {"dtype": "I64", "shape": [0, 3], "data_offsets": [18, 18]},
}
DATA = np.arange(4, dtype="<f4").tobytes() + b"\x80\x3f"


def build(header: dict[str, Any] | bytes, data: bytes, *, length: int | None = None) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(encoded) if length is None else length).to_bytes(8, "little") + encoded + data


def one(dtype: str, data: bytes, shape: list[int]) -> bytes:
    return build({"x": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(data)]}}, data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    path.write_bytes(build(HEADER, DATA))
    return path


def test_the_header_is_read(path: Path):
    header = read_header(path)
    assert header.metadata == {"ledger": '{"step":1}'}
    assert header.tensors["a"] == TensorInfo("F32", (2, 2), 0, 16)
    assert list(header.tensors) == ["a", "b", "empty"]
    assert header.data_start == path.stat().st_size - len(DATA)


def test_every_tensor_is_hashed(path: Path):
    entries = scan_tensors(path).entries
    assert entries["a"].sha256 == hashlib.sha256(DATA[:16]).hexdigest()
    assert entries["b"].sha256 == hashlib.sha256(DATA[16:]).hexdigest()
    assert entries["empty"].sha256 == hashlib.sha256(b"").hexdigest()
    assert (entries["a"].dtype, entries["a"].shape) == ("F32", [2, 2])


class Watched(FileSystem):
    """Notes which operation was asked for, of how many bytes, and by which thread; refuses syncs on demand."""

    def __init__(self, *, refuses_syncs: bool = False) -> None:
        self.asked: list[tuple[str, Any, int]] = []
        self._refuses_syncs = refuses_syncs

    def perform(self, operation: str, path: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        self.asked.append((operation, arguments[1:], threading.get_ident()))
        if operation == "fsync" and self._refuses_syncs:
            raise OSError(errno.EIO, "broken")
        return super().perform(operation, path, function, *arguments, **options)


@pytest.mark.parametrize("behind", [1, 64])
def test_a_file_is_read_once_for_its_digest_and_its_tensors_and_synced(
    path: Path, monkeypatch: pytest.MonkeyPatch, behind: int
):
    monkeypatch.setattr("ledger.storage.safetensors._BLOCK_BYTES", 8)  # tensors of several blocks
    monkeypatch.setattr("ledger.storage.safetensors._BLOCKS_BEHIND", behind)
    first, second = Watched(), Watched()
    file, tensors = sync_and_hash(path, fs=first)
    assert (file, tensors) == sync_and_hash(path, fs=second)
    assert file == hash_file(path)
    assert tensors == scan_tensors(path).entries
    assert first.asked == second.asked
    assert {thread for _, _, thread in first.asked} == {threading.get_ident()}
    assert [operation for operation, _, _ in first.asked[-2:]] == ["fsync", "close"]


def test_a_file_that_cannot_be_synced_has_no_digest(path: Path):
    with pytest.raises(StorageError, match="could not fsync"):
        sync_and_hash(path, fs=Watched(refuses_syncs=True))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ledger-digest")]


def test_the_table_s_digest_does_not_depend_on_order(path: Path):
    entries = scan_tensors(path).entries
    expected = hashlib.sha256(
        json.dumps(
            {
                name: {"dtype": e.dtype, "sha256": e.sha256, "shape": e.shape}
                for name, e in sorted(entries.items())
            },
            separators=(",", ":"),
        ).encode()
    ).hexdigest()
    assert tensor_table_sha256(dict(reversed(entries.items()))) == expected


def test_a_tensor_of_many_blocks(tmp_path: Path):
    data = np.random.default_rng(0).random(300_001).astype("<f8").tobytes()
    path = tmp_path / "x"
    path.write_bytes(one("F64", data, [300_001]))
    done: list[int] = []
    scan = scan_tensors(path, progress=done.append)
    assert scan.entries["x"].sha256 == hashlib.sha256(data).hexdigest()
    assert scan.nonfinite == []
    assert sum(done) == len(data)


def _bf16(value: float) -> bytes:
    return np.float32(value).astype("<f4").tobytes()[2:]


NONFINITE = {
    "F64 NaN": ("F64", np.array([1.0, np.nan], "<f8").tobytes(), [2], True),
    "F32 infinity": ("F32", np.array([1.0, np.inf], "<f4").tobytes(), [2], True),
    "F32 negative infinity": ("F32", np.array([1.0, -np.inf], "<f4").tobytes(), [2], True),
    "F16 infinity": ("F16", np.array([1.0, np.inf], "<f2").tobytes(), [2], True),
    "BF16 NaN": ("BF16", _bf16(1.0) + _bf16(float("nan")), [2], True),
    "BF16 infinity": ("BF16", _bf16(1.0) + _bf16(float("-inf")), [2], True),
    "BF16 greatest": ("BF16", b"\x7f\x7f\x7f\xff", [2], False),
    "F32 greatest": ("F32", np.array([np.finfo("<f4").max], "<f4").tobytes(), [1], False),
    "F8_E5M2 infinity": ("F8_E5M2", b"\x7c", [1], True),
    "F8_E5M2 greatest": ("F8_E5M2", b"\x7b", [1], False),
    "F8_E4M3 NaN": ("F8_E4M3", b"\xff", [1], True),
    "F8_E4M3 greatest": ("F8_E4M3", b"\x7e", [1], False),
    "integers of the same bits": ("I16", b"\x80\x7f", [1], False),
    "in the first of two blocks": (
        "F32",
        np.append(np.float32("nan"), np.zeros(600_000, "<f4")).astype("<f4").tobytes(),
        [600_001],
        True,
    ),
    "beyond the first block": (
        "F32",
        np.append(np.zeros(600_000, "<f4"), np.float32("nan")).tobytes(),
        [600_001],
        True,
    ),
}


@pytest.mark.parametrize("name", NONFINITE)
def test_non_finite_elements_are_found_in_the_raw_bytes(tmp_path: Path, name: str):
    dtype, data, shape, is_bad = NONFINITE[name]
    path = tmp_path / "x"
    path.write_bytes(one(dtype, data, shape))
    assert nonfinite_tensors(path) == (["x"] if is_bad else [])


def changed(name: str, **changes: Any) -> dict[str, Any]:
    return {**HEADER, name: HEADER[name] | changes}


TWICE = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
REFUSED = {
    "no bytes": (b"", "the file holds 0 bytes"),
    "seven bytes": (b"1234567", "the file holds 7 bytes"),
    "K16 header beyond the file": (build(HEADER, b"", length=10_000), "more than the file's"),
    "K16 header beyond the bound": (build(HEADER, DATA, length=100_000_001), "at most 100,000,000"),
    "K16 header of 0 bytes": (build(b"", b""), "no JSON object"),
    "K16 not an object": (build(b"[]", b""), "no JSON object"),
    "K16 not UTF-8": (build(b'{"\xff":1}', b""), "is no UTF-8"),
    "K17 overlap": (build(changed("b", data_offsets=[14, 16]), DATA), "overlaps"),
    "K17 hole": (build(changed("b", data_offsets=[17, 19]), DATA + b"\0"), "hole"),
    "K17 end beyond the file": (build(HEADER, DATA[:-1]), "cut off"),
    "K17 end before begin": (build(changed("b", data_offsets=[18, 16]), DATA), "begin and end"),
    "K17 negative": (build(changed("b", data_offsets=[-2, 0]), DATA), "begin and end"),
    "K18 a name twice": (build(TWICE, b"\0"), "the key appears twice"),
    "K18 shape and bytes differ": (build(changed("a", shape=[2, 3]), DATA), "expected 24 bytes"),
    "K18 trailing bytes": (build(HEADER, DATA + b"\0"), "bytes were appended"),
    "a huge shape": (build(changed("a", shape=[2**52, 2**52]), DATA), "offsets span 16 bytes"),
    "a shape of bools": (build(changed("a", shape=[True, True]), DATA), "shape"),
    "an unknown type": (build(changed("a", dtype="F31"), DATA), "the element type 'F31' is unknown"),
    "an extra key": (build(changed("a", more=1), DATA), "malformed"),
    "metadata of numbers": (build({**HEADER, "__metadata__": {"step": 1}}, DATA), "metadata"),
    "a pickle": (b"\x80\x04" + b"\0" * 30, "header claims"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_malformed_file_is_refused(tmp_path: Path, name: str):
    data, fragment = REFUSED[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(InvalidDocumentError) as caught:
        read_header(path)
    assert str(caught.value).startswith(str(path))
    assert fragment in str(caught.value)


def test_every_cut_is_refused(path: Path):
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidDocumentError):
            read_header(path)


def test_a_file_is_hashed_with_its_size(tmp_path: Path):
    data = bytes(range(256)) * 10_000
    (tmp_path / "a").write_bytes(data)
    done: list[int] = []
    assert hash_file(tmp_path / "a", progress=done.append) == (len(data), hashlib.sha256(data).hexdigest())
    assert sum(done) == len(data)


def test_a_file_that_shrinks_while_it_is_hashed_is_no_digest(tmp_path: Path):
    data = bytes(8 << 20)
    path = tmp_path / "x"
    path.write_bytes(one("U8", data, [len(data)]))
    with pytest.raises(StorageError, match="became shorter"):
        scan_tensors(path, progress=lambda _: path.write_bytes(path.read_bytes()[:5000]))


@pytest.mark.parametrize(
    ("dtype", "data", "shape", "value"),
    [
        ("F32", np.float32(7).tobytes(), [], 7.0),
        ("F64", np.float64(0.5).tobytes(), [1], 0.5),
        ("F16", np.float16(3).tobytes(), [1, 1], 3.0),
        ("I64", np.int64(-5).tobytes(), [], -5),
        ("U8", b"\x09", [], 9),
        ("F32", np.arange(2, dtype="<f4").tobytes(), [2], None),
        ("BF16", b"\x80\x3f", [], None),
        ("I32", b"", [0], None),
    ],
)
def test_single_numbers_are_read(dtype: str, data: bytes, shape: list[int], value: object, tmp_path: Path):
    (tmp_path / "x").write_bytes(one(dtype, data, shape))
    assert read_numbers(tmp_path / "x", {"x", "absent"}) == {"x": value}


def test_numbers_behind_others_are_read_at_their_place(path: Path):
    path.write_bytes(
        build(HEADER | {"n": {"dtype": "F32", "shape": [], "data_offsets": [18, 22]}}, DATA + b"\0\0\0\x40")
    )
    assert read_numbers(path, ["n", "a"]) == {"n": 2.0, "a": None}
