from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.errors import StorageError, UsageError
from ledger.storage.filesystem import FileSystem
from ledger.storage.tensor_files import TensorForm, read_tensors, write_safetensors

VALUES: dict[str, tuple[str, Any]] = {
    "weight": ("F32", np.arange(6, dtype="<f4").reshape(2, 3)),
    "a step": ("F32", np.float32(3.0)),
    "ids": ("I64", np.arange(5, dtype="<i8")),
    "mask": ("U8", np.array([1, 0, 1], dtype="u1")),
    "height": ("F16", np.zeros((0, 4), dtype="<f2")),
}
FORMS = {name: TensorForm(dtype, value.shape) for name, (dtype, value) in VALUES.items()}
METADATA = {"ledger": '{"step":1}'}


def content(name: str) -> memoryview:
    return memoryview(VALUES[name][1].tobytes())


def write(path: Path, **changes) -> bytes:
    write_safetensors(path, **{"tensors": FORMS, "content": content, "metadata": METADATA, **changes})
    return path.read_bytes()


def test_what_is_written_is_read(tmp_path: Path):
    write(tmp_path / "file")
    found = {
        name: (info.dtype, info.shape, bytes(data)) for name, info, data in read_tensors(tmp_path / "file")
    }
    assert found == {name: (dtype, value.shape, value.tobytes()) for name, (dtype, value) in VALUES.items()}


def test_the_format_s_own_library_writes_the_same_bytes(tmp_path: Path):
    library = pytest.importorskip("safetensors.numpy")
    arrays = {name: np.asarray(value) for name, (_, value) in VALUES.items()}
    assert write(tmp_path / "file") == library.save(arrays, metadata=METADATA)


def test_the_order_of_names_changes_no_byte(tmp_path: Path):
    backwards = dict(reversed(FORMS.items()))
    assert write(tmp_path / "one") == write(tmp_path / "other", tensors=backwards)


def test_a_file_without_tensors_is_one(tmp_path: Path):
    write(tmp_path / "file", tensors={})
    assert list(read_tensors(tmp_path / "file")) == []


def test_an_existing_file_is_not_written_over(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"theirs")
    with pytest.raises(StorageError):
        write(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"theirs"


def test_bytes_of_another_number_than_the_form_says_are_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="came with 7 bytes"):
        write(tmp_path / "file", content=lambda _: memoryview(b"1234567"))


class Small(FileSystem):
    """Reads and writes seven bytes at most, and keeps count of what was asked for."""

    def __init__(self) -> None:
        self.most = 0

    def perform(self, operation, path, function, *arguments, **options):
        if operation == "pread":
            descriptor, count, offset = arguments
            return os.pread(descriptor, min(count, 7), offset)
        if operation == "write":
            self.most = max(self.most, len(arguments[1]))
            return os.write(arguments[0], arguments[1][:7])
        return super().perform(operation, path, function, *arguments, **options)


def test_short_reads_and_writes_are_completed(tmp_path: Path):
    write(tmp_path / "file", fs=Small())
    assert write(tmp_path / "other") == (tmp_path / "file").read_bytes()
    assert [bytes(data) for _, _, data in read_tensors(tmp_path / "file", fs=Small())] == [
        bytes(data) for _, _, data in read_tensors(tmp_path / "file")
    ]


def test_a_large_tensor_is_written_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ledger.storage.tensor_files._BLOCK_BYTES", 8)
    fs = Small()
    write(tmp_path / "file", tensors={"ids": FORMS["ids"]}, metadata={}, fs=fs)
    assert fs.most < 100
    assert (
        write(tmp_path / "other", tensors={"ids": FORMS["ids"]}, metadata={})
        == (tmp_path / "file").read_bytes()
    )


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path: Path):
    write(tmp_path / "file")

    class Cutting(FileSystem):
        def perform(self, operation, path, function, *arguments, **options):
            if operation == "pread" and arguments[2] > 8:
                os.truncate(path, 20)
            return super().perform(operation, path, function, *arguments, **options)

    with pytest.raises(StorageError, match="shorter"):
        list(read_tensors(tmp_path / "file", fs=Cutting()))
