"""The bytes of safetensors files, in and out through the storage seam, one tensor in memory at a time.

`storage.safetensors` says what a header may be. The format's own library writes past the seam and maps files into
memory, where one that is cut off kills its reader; what lies in a file is the same, byte for byte.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ledger.errors import StorageError, UsageError
from ledger.storage.files import opened_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.safetensors import ELEMENT_BYTES, TensorInfo, read_header

__all__ = ["TensorForm", "read_tensors", "write_safetensors"]

_BLOCK_BYTES: Final = 1 << 23
_ALIGNMENT: Final = 8
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class TensorForm(NamedTuple):
    """A tensor's element type, by its name in the format, and its dimensions."""

    dtype: str
    shape: Sequence[int]

    @property
    def bytes(self) -> int:
        """The bytes that its elements take."""
        return math.prod(self.shape) * ELEMENT_BYTES[self.dtype]


def write_safetensors(
    path: StrPath,
    tensors: Mapping[str, TensorForm],
    *,
    content: Callable[[str], memoryview],
    metadata: Mapping[str, str],
    fs: FileSystem = OS,
) -> None:
    """Write a new file, unsynced; the same tensors and metadata give the same bytes, in any order of names.

    `content` is asked for each tensor's little-endian bytes when its turn comes.

    Raises:
        UsageError: a tensor's bytes are not as many as its form says.
        StorageError: the system refused; a part of the file may be left.
    """
    # Wide elements first, so that each tensor begins at a multiple of its element's size.
    names = sorted(tensors, key=lambda name: (-ELEMENT_BYTES[tensors[name].dtype], name))
    with fs.opened(path, _NEW_FILE) as descriptor:
        fs.write(descriptor, _header(tensors, names, metadata), path=path)
        for name in names:
            data = content(name)
            if data.nbytes != tensors[name].bytes:
                raise UsageError(
                    f"tensor {name} came with {data.nbytes:,} bytes",
                    path=path,
                    expected=f"{tensors[name].bytes:,}",
                )
            for begin in range(0, data.nbytes, _BLOCK_BYTES):
                fs.write(descriptor, data[begin : begin + _BLOCK_BYTES], path=path)


def read_tensors(path: StrPath, *, fs: FileSystem = OS) -> Iterator[tuple[str, TensorInfo, bytearray]]:
    """Yield every tensor's name, form and bytes, in the order of the file.

    Raises:
        InvalidDocumentError, EvidenceMissingError, UnsafeError: as `safetensors.read_header`.
        StorageError: the system refused, or the file became shorter.
    """
    header = read_header(path, fs=fs)
    with opened_regular_file(path, fs=fs) as descriptor:
        for name, info in header.tensors.items():
            buffer = bytearray(info.end - info.begin)
            _fill(memoryview(buffer), descriptor, header.data_start + info.begin, path, fs=fs)
            yield name, info, buffer


def _header(tensors: Mapping[str, TensorForm], names: Sequence[str], metadata: Mapping[str, str]) -> bytes:
    table: dict[str, object] = {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        begin, end = end, end + tensors[name].bytes
        dtype, shape = tensors[name]
        table[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def _fill(buffer: memoryview, descriptor: int, offset: int, path: StrPath, *, fs: FileSystem) -> None:
    while buffer:
        part = fs.pread(descriptor, min(len(buffer), _BLOCK_BYTES), offset, path=path)
        if not part:
            raise StorageError(
                "the file became shorter while it was read", path=path, advice="read it again at rest"
            )
        buffer[: len(part)] = part
        buffer, offset = buffer[len(part) :], offset + len(part)
