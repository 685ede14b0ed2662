"""The one form of array file that datasets use: one-dimensional little-endian `.npy`, format version 1.0.

Every array of one type and length has exactly one header, 128 bytes long. Whatever differs from it is refused,
also where NumPy's own reader would accept it: pickled objects, other byte orders, trailing bytes, spellings.
Nothing is memory-mapped and nothing is unpickled. (The format: NEP 1 and `numpy.lib.format`.)
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from ledger.errors import (
    InvalidDocumentError,
    NewerVersionError,
    StorageError,
    UnsafeError,
    VerificationError,
)
from ledger.records.dataset import HEADER_BYTES
from ledger.records.fields import MAX_INTEGER
from ledger.storage.files import opened_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath

__all__ = [
    "ArrayDtype",
    "NpyHeader",
    "array_bytes",
    "canonical_header",
    "parse_header",
    "read_array",
    "read_header",
    "read_items",
    "write_array",
]

ArrayDtype = Literal["uint16", "uint32", "uint64"]
_MAGIC: Final = b"\x93NUMPY"
_PREFIX_BYTES: Final = len(_MAGIC) + 4  # magic, two version bytes, two bytes of header length
_PEEK_BYTES: Final = 4096  # more than a header has: enough to name what stands there instead
_CODES: Final[dict[ArrayDtype, str]] = {"uint16": "<u2", "uint32": "<u4", "uint64": "<u8"}
_DTYPES: Final[dict[str, ArrayDtype]] = {code: dtype for dtype, code in _CODES.items()}
_HEADER: Final = re.compile(
    rb"\{'descr': '(<u[248])', 'fortran_order': False, 'shape': \(([0-9]+),\), \} *\n"
)
_OBJECT_TYPE: Final = re.compile(rb"""['"][|<>=]?O[0-9]*['"]""")
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_ADVICE: Final = "restore the file from where the dataset was prepared, or prepare it again"


@dataclass(frozen=True)
class NpyHeader:
    """What the header of an array file says, and what follows from it."""

    dtype: ArrayDtype
    count: int

    @property
    def item_bytes(self) -> int:
        """Bytes of one element."""
        return int(_CODES[self.dtype][2:])

    @property
    def file_bytes(self) -> int:
        """The exact size of the whole file."""
        return HEADER_BYTES + self.count * self.item_bytes

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The little-endian NumPy type of the elements."""
        return np.dtype(_CODES[self.dtype])


def canonical_header(dtype: ArrayDtype, count: int) -> bytes:
    """Return the only header that an array of `count` elements of `dtype` may have."""
    text = f"{{'descr': '{_CODES[dtype]}', 'fortran_order': False, 'shape': ({count},), }}"
    padding = HEADER_BYTES - _PREFIX_BYTES - len(text) - 1
    length = HEADER_BYTES - _PREFIX_BYTES
    return _MAGIC + b"\x01\x00" + length.to_bytes(2, "little") + text.encode() + b" " * padding + b"\n"


def array_bytes(values: NDArray[Any], *, dtype: ArrayDtype) -> bytes:
    """Return the bytes of an array file that holds `values`, which must already be of that type.

    Raises:
        ValueError: `values` is not a one-dimensional, non-empty array of `dtype`.
    """
    return b"".join(_parts(values, dtype=dtype))


def read_header(path: StrPath, *, fs: FileSystem = OS) -> NpyHeader:
    """Read and validate the header of an array file and its exact size; no element is read.

    Raises:
        EvidenceMissingError: there is no such file.
        VerificationError: the file is damaged: cut, too long, or empty.
        InvalidDocumentError: the file is not in the one form that datasets use.
        NewerVersionError: it is in a version of the format that is not known here.
        UnsafeError: it is no regular file, or holds pickled objects.
        StorageError: it could not be read.
    """
    with opened_regular_file(path, fs=fs) as descriptor:
        size = fs.fstat(descriptor, path=path).st_size
        head = _read_exactly(descriptor, min(size, _PEEK_BYTES), offset=0, path=path, fs=fs)
        return parse_header(head, file_bytes=size, path=path)


def read_array(path: StrPath, *, fs: FileSystem = OS) -> NDArray[Any]:
    """Return all elements of an array file; raises what `read_header` raises."""
    header = read_header(path, fs=fs)
    return read_items(path, header=header, start=0, count=header.count, fs=fs)


def read_items(
    path: StrPath, *, header: NpyHeader, start: int, count: int, fs: FileSystem = OS
) -> NDArray[Any]:
    """Return elements `start` to `start + count` of a file whose header was read before.

    Raises:
        StorageError: the file ends early: it was cut since its header was read.
    """
    offset = HEADER_BYTES + start * header.item_bytes
    with opened_regular_file(path, fs=fs) as descriptor:
        data = _read_exactly(descriptor, count * header.item_bytes, offset=offset, path=path, fs=fs)
    return np.frombuffer(data, dtype=header.numpy_dtype)


def write_array(
    path: StrPath, values: NDArray[Any], *, dtype: ArrayDtype, fs: FileSystem = OS
) -> tuple[int, str]:
    """Write a new array file, synced, and return its size in bytes and its SHA-256.

    Raises:
        ValueError: `values` is not a one-dimensional, non-empty array of `dtype`.
        StorageError: the file exists, or the system refuses.
    """
    header, data = _parts(values, dtype=dtype)
    digest = hashlib.sha256(header)
    digest.update(data)
    with fs.opened(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        fs.write(descriptor, header, path=path)
        fs.write(descriptor, data, path=path)
        fs.sync(descriptor, path=path)
    return len(header) + len(data), digest.hexdigest()


def parse_header(head: bytes, *, file_bytes: int, path: StrPath) -> NpyHeader:
    """Validate the first bytes of an array file against its size; raises what `read_header` raises."""
    text = _header_text(head, file_bytes=file_bytes, path=path)
    match = _HEADER.fullmatch(text)
    if match is None:
        _refuse_header(text, path=path)
    header = NpyHeader(_DTYPES[match[1].decode()], _element_count(match[2], path=path))
    if head[:HEADER_BYTES] != canonical_header(header.dtype, header.count):
        problem = f"the header is {_PREFIX_BYTES + len(text)} bytes long"
        raise InvalidDocumentError(problem, path=path, expected=f"{HEADER_BYTES} bytes, padded with spaces")
    if file_bytes != header.file_bytes:
        problem = (
            f"the file is {file_bytes} bytes long; it should hold {header.count} {header.dtype} elements"
        )
        raise VerificationError(problem, path=path, expected=f"{header.file_bytes} bytes", advice=_ADVICE)
    return header


def _parts(values: NDArray[Any], *, dtype: ArrayDtype) -> tuple[bytes, memoryview]:
    """Return the header and the bytes of an array file; raises what `array_bytes` raises."""
    wanted = np.dtype(_CODES[dtype])
    if values.ndim != 1 or values.size == 0 or values.dtype != wanted:
        raise ValueError(
            f"an array file holds one-dimensional, non-empty {dtype}, not {values.dtype} {values.shape}"
        )
    # A view of the values, not a copy: a shard may be large.
    data = np.ascontiguousarray(values.astype(wanted, copy=False)).view(np.uint8).data
    return canonical_header(dtype, values.size), data


def _header_text(head: bytes, *, file_bytes: int, path: StrPath) -> bytes:
    """Return the header's text, cut off where `head` ends."""
    if not head.strip(b"\0"):
        found = "holds only zeros" if head else "is empty"
        raise VerificationError(f"the file {found}", path=path, expected="an array file", advice=_ADVICE)
    if not _MAGIC.startswith(head[: len(_MAGIC)]):
        _refuse_format(head, path=path)
    if len(head) < _PREFIX_BYTES:
        problem = f"the file ends after {len(head)} bytes, inside its header"
        raise VerificationError(problem, path=path, expected="an array file", advice=_ADVICE)
    version = (head[6], head[7])
    if version in {(2, 0), (3, 0)}:
        problem = f"array format version {version[0]}.0, which these arrays never need"
        raise InvalidDocumentError(problem, path=path, place="byte 6", expected="version 1.0")
    if version != (1, 0):
        problem = f"array format version {version[0]}.{version[1]} is unknown here"
        raise NewerVersionError(problem, path=path, place="byte 6", expected="version 1.0")
    length = int.from_bytes(head[8:10], "little")
    if _PREFIX_BYTES + length > file_bytes:
        problem = f"the file ends after {file_bytes} bytes, inside its header of {_PREFIX_BYTES + length}"
        raise VerificationError(problem, path=path, expected="an array file", advice=_ADVICE)
    return head[_PREFIX_BYTES : _PREFIX_BYTES + length]


def _read_exactly(descriptor: int, count: int, *, offset: int, path: StrPath, fs: FileSystem) -> bytes:
    parts = []
    while count:
        part = fs.pread(descriptor, count, offset, path=path)
        if not part:
            problem = f"the file ended {count} bytes early: it was cut while it was being read"
            raise StorageError(problem, path=path, place=f"byte {offset}", advice=_ADVICE)
        parts.append(part)
        count -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _refuse_format(head: bytes, *, path: StrPath) -> NoReturn:
    if _PICKLE.match(head):
        problem = "this is a Python pickle, which can run code when it is read"
        raise UnsafeError(problem, path=path, expected="an array file", advice="do not load it; remove it")
    hint = None
    if head.startswith(b"PK\x03\x04"):
        hint = "this looks like a zip or .npz archive"
    elif head.startswith(b"\x1f\x8b"):
        hint = "this looks like gzip; array files are stored uncompressed"
    elif head.startswith(b"version https://git-lfs"):
        hint = "this is a git-LFS pointer; fetch the file it stands for"
    raise InvalidDocumentError(
        f"not an array file: it begins with {head[:8]!r}", path=path, expected=f"{_MAGIC!r}", advice=hint
    )


def _refuse_header(text: bytes, *, path: StrPath) -> NoReturn:
    if _OBJECT_TYPE.search(text):
        problem = "the array holds Python objects, which can run code when they are read"
        raise UnsafeError(
            problem, path=path, expected="unsigned integers", advice="do not load it; remove it"
        )
    shown = text.rstrip(b" \n")[:120]
    expected = (
        "{'descr': '<u2', '<u4' or '<u8', 'fortran_order': False, 'shape': (N,), } in exactly this spelling"
    )
    raise InvalidDocumentError(
        f"header {shown!r} is not in the one form used here", path=path, expected=expected
    )


def _element_count(digits: bytes, *, path: StrPath) -> int:
    expected = f"1 to {MAX_INTEGER // 8} elements, written without leading zeros"
    if len(digits) > 20 or digits.startswith(b"0") or not 0 < int(digits) <= MAX_INTEGER // 8:
        shown = digits[:24].decode()
        raise InvalidDocumentError(f"the header announces {shown} elements", path=path, expected=expected)
    return int(digits)
