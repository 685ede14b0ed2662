"""Reading safetensors files without torch: a strict header, digests and finiteness from the raw bytes.

The format is that of huggingface/safetensors: an 8-byte little-endian length, a JSON header, then the tensors' bytes.
Beyond that library's own checks, duplicate names, holes and trailing bytes are refused here.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledger.errors import InvalidDocumentError, StorageError
from ledger.records.documents import TensorEntry
from ledger.storage.digests import FileDigest
from ledger.storage.files import opened_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.strict_json import parse_json

__all__ = [
    "ELEMENT_BYTES",
    "SafetensorsHeader",
    "TensorInfo",
    "TensorScan",
    "nonfinite_tensors",
    "opened_tensors",
    "read_header",
    "read_numbers",
    "scan_tensors",
    "sync_and_hash",
]

MAX_HEADER_BYTES: Final = 100_000_000
"""The bound that the format's own library sets."""

_BLOCK_BYTES: Final = 1 << 20
_BLOCKS_BEHIND: Final = 32
"""How many blocks may wait for each of two digests: 64 MiB of memory in all."""

_LENGTH_BYTES: Final = 8
_MAX_DIMENSIONS: Final = 64

_NUMPY_TYPES: Final = {
    "F16": "<f2", "F32": "<f4", "F64": "<f8",
    "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8",
    "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8",
}  # fmt: skip
"""The types whose numbers NumPy reads; the others are known by their bytes alone."""

ELEMENT_BYTES: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip
"""The format's element types and their sizes."""


class TensorInfo(NamedTuple):
    """What a header says of one tensor; `begin` and `end` are bytes from the start of the data."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsHeader(NamedTuple):
    """A file's metadata and its tensors in the order of their bytes; `data_start` is in bytes from the file's start."""

    metadata: dict[str, str]
    tensors: dict[str, TensorInfo]
    data_start: int


class TensorScan(NamedTuple):
    """What one pass over a file's bytes found: each tensor's digest, and the names of those not finite throughout."""

    entries: dict[str, TensorEntry]
    nonfinite: list[str]


def read_header(path: StrPath, *, fs: FileSystem = OS) -> SafetensorsHeader:
    """Read and validate a file's header against its size.

    Raises:
        InvalidDocumentError: it is no safetensors file, or its tensors do not fill the file exactly.
        EvidenceMissingError: there is no such file.
        UnsafeError: it is no regular file.
        StorageError: the system refused.
    """
    with opened_regular_file(path, fs=fs) as descriptor:
        return _read_header(descriptor, path, fs=fs)


def scan_tensors(
    path: StrPath, *, progress: Callable[[int], object] | None = None, fs: FileSystem = OS
) -> TensorScan:
    """Hash every tensor and look for non-finite elements, in one pass and bounded memory.

    `progress` is called with the bytes of each block that is done. Errors as `read_header`.
    """
    entries: dict[str, TensorEntry] = {}
    nonfinite = []
    with opened_regular_file(path, fs=fs) as descriptor:
        header = _read_header(descriptor, path, fs=fs)
        for name, info in header.tensors.items():
            digest = hashlib.sha256()
            is_finite = True
            for block in _read_blocks(
                descriptor, header.data_start + info.begin, info.end - info.begin, path, fs=fs
            ):
                digest.update(block)
                is_finite = is_finite and not _has_nonfinite(block, info.dtype)
                if progress is not None:
                    progress(len(block))
            entries[name] = TensorEntry(dtype=info.dtype, shape=list(info.shape), sha256=digest.hexdigest())
            if not is_finite:
                nonfinite.append(name)
    return TensorScan(entries, nonfinite)


def sync_and_hash(path: StrPath, *, fs: FileSystem = OS) -> tuple[FileDigest, dict[str, TensorEntry]]:
    """Force a file that something else wrote onto the device; return its digest and those of its tensors.

    Each byte is read back once. The file operations are this thread's, in an order that never varies; two threads
    hash what was read meanwhile, also while the system syncs.

    Raises:
        InvalidDocumentError, EvidenceMissingError, UnsafeError: as `read_header`.
        StorageError: the system refused, or the file became shorter.
    """
    whole = hashlib.sha256()
    with (
        opened_regular_file(path, fs=fs) as descriptor,
        _hashing_behind() as of_file,
        _hashing_behind() as of_tensors,
    ):
        header = _read_header(descriptor, path, fs=fs)
        digests = {name: hashlib.sha256() for name in header.tensors}
        size = header.data_start
        for block in _read_blocks(descriptor, 0, size, path, fs=fs):
            of_file(whole.update, block)
        for name, info in header.tensors.items():
            for block in _read_blocks(descriptor, size, info.end - info.begin, path, fs=fs):
                of_file(whole.update, block)
                of_tensors(digests[name].update, block)
                size += len(block)
        fs.sync(descriptor, path=path)
    entries = {
        name: TensorEntry(dtype=info.dtype, shape=list(info.shape), sha256=digests[name].hexdigest())
        for name, info in header.tensors.items()
    }
    return FileDigest(size, whole.hexdigest()), entries


@contextmanager
def _hashing_behind() -> Iterator[Callable[[Callable[[bytes], None], bytes], None]]:
    """Yield what hands a block to a digest in a thread, a bounded number of them behind; all are done at the end."""
    waiting: deque[Future[None]] = deque()
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger-digest")

    def hand_over(update: Callable[[bytes], None], block: bytes) -> None:
        if len(waiting) == _BLOCKS_BEHIND:
            waiting.popleft().result()
        waiting.append(thread.submit(update, block))

    try:
        yield hand_over
        for hashed in waiting:
            hashed.result()
    finally:
        thread.shutdown(cancel_futures=True)


def nonfinite_tensors(path: StrPath, *, fs: FileSystem = OS) -> list[str]:
    """Return the names of the floating-point tensors that hold a NaN or an infinity; errors as `read_header`."""
    return scan_tensors(path, fs=fs).nonfinite


def read_numbers(
    path: StrPath, names: Collection[str], *, fs: FileSystem = OS
) -> dict[str, float | int | None]:
    """Return the value of each named tensor that the file holds; None for one that is no single number.

    Nothing but the header and these tensors is read. Errors as `read_header`.
    """
    numbers: dict[str, float | int | None] = {}
    with opened_regular_file(path, fs=fs) as descriptor:
        header = _read_header(descriptor, path, fs=fs)
        for name, info in header.tensors.items():
            if name not in names:
                continue
            numbers[name] = None
            if math.prod(info.shape) == 1 and info.dtype in _NUMPY_TYPES:
                data = _read_exactly(
                    descriptor, info.end - info.begin, header.data_start + info.begin, path, fs=fs
                )
                numbers[name] = np.frombuffer(data, dtype=_NUMPY_TYPES[info.dtype])[0].item()
    return numbers


@contextmanager
def opened_tensors(path: StrPath, *, fs: FileSystem = OS) -> Iterator[Callable[[str, int], Iterator[bytes]]]:
    """Open a file and yield what reads a tensor by name, in blocks of so many elements; errors as `read_header`."""
    with opened_regular_file(path, fs=fs) as descriptor:
        header = _read_header(descriptor, path, fs=fs)

        def read(name: str, elements: int) -> Iterator[bytes]:
            info = header.tensors[name]
            size = elements * ELEMENT_BYTES[info.dtype]
            begin, count = header.data_start + info.begin, info.end - info.begin
            return _read_blocks(descriptor, begin, count, path, fs=fs, block_bytes=size)

        yield read


def _read_header(descriptor: int, path: StrPath, *, fs: FileSystem) -> SafetensorsHeader:
    size = fs.fstat(descriptor, path=path).st_size
    if size < _LENGTH_BYTES:
        raise _invalid(f"the file holds {size} bytes, which is no safetensors file", path)
    length = int.from_bytes(_read_exactly(descriptor, _LENGTH_BYTES, 0, path, fs=fs), "little")
    if length > MAX_HEADER_BYTES:
        raise _invalid(f"its header claims {length:,} bytes", path, expected=f"at most {MAX_HEADER_BYTES:,}")
    data_start = _LENGTH_BYTES + length
    if data_start > size:
        raise _invalid(
            f"its header claims {length:,} bytes, more than the file's {size:,} hold",
            path,
            advice="it was cut off",
        )
    data = _read_exactly(descriptor, length, _LENGTH_BYTES, path, fs=fs)
    if not data.startswith(b"{"):
        raise _invalid("its header is no JSON object", path, place=f"byte {_LENGTH_BYTES}")
    value = parse_json(data, path=path, max_bytes=MAX_HEADER_BYTES)
    metadata = _validate_metadata(value.pop("__metadata__", {}), path)
    tensors = {name: _validate_tensor(name, entry, path) for name, entry in value.items()}
    ordered = dict(sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)))
    _require_gapless(ordered, size - data_start, path)
    return SafetensorsHeader(metadata, ordered, data_start)


def _validate_metadata(value: object, path: StrPath) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise _invalid("its metadata is no map from text to text", path, place="`__metadata__`")
    return value


def _validate_tensor(name: str, entry: object, path: StrPath) -> TensorInfo:
    place = f"tensor `{name}`"
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise _invalid("its entry is malformed", path, place=place, expected="dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ELEMENT_BYTES:
        raise _invalid(
            f"the element type {ascii(dtype)[:40]} is unknown",
            path,
            place=place,
            expected=", ".join(ELEMENT_BYTES),
        )
    if not _is_counts(shape) or len(shape) > _MAX_DIMENSIONS:
        raise _invalid("its shape is no list of counts", path, place=place)
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[1] < offsets[0]:
        raise _invalid("its data_offsets are no begin and end in this order", path, place=place)
    needed = math.prod(shape) * ELEMENT_BYTES[dtype]
    if needed != offsets[1] - offsets[0]:
        raise _invalid(
            f"its offsets span {offsets[1] - offsets[0]:,} bytes",
            path,
            place=place,
            expected=f"{needed:,} bytes",
        )
    return TensorInfo(dtype, tuple(shape), offsets[0], offsets[1])


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int and number >= 0 for number in value)


def _require_gapless(tensors: Mapping[str, TensorInfo], data_bytes: int, path: StrPath) -> None:
    """Insist that the tensors follow one another without overlap or hole and fill the file."""
    end = 0
    for name, info in tensors.items():
        if info.begin != end:
            what = "overlaps the tensor before it" if info.begin < end else "leaves a hole before it"
            raise _invalid(
                f"it begins at {info.begin:,} and {what}", path, place=f"tensor `{name}`", expected=f"{end:,}"
            )
        end = info.end
    if end != data_bytes:
        what = "the file was cut off" if end > data_bytes else "bytes were appended"
        raise _invalid(
            f"its tensors take {end:,} bytes, but {data_bytes:,} follow the header", path, advice=what
        )


def _read_exactly(descriptor: int, count: int, offset: int, path: StrPath, *, fs: FileSystem) -> bytes:
    return b"".join(bytes(block) for block in _read_blocks(descriptor, offset, count, path, fs=fs))


def _read_blocks(
    descriptor: int,
    offset: int,
    count: int,
    path: StrPath,
    *,
    fs: FileSystem,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[bytes]:
    """Yield `count` bytes from `offset` on, in blocks that hold whole elements."""
    end = offset + count
    while offset < end:
        wanted = min(block_bytes, end - offset)
        block = fs.pread(descriptor, wanted, offset, path=path)
        while 0 < len(block) < wanted:
            more = fs.pread(descriptor, wanted - len(block), offset + len(block), path=path)
            if not more:
                break
            block += more
        if len(block) < wanted:
            raise StorageError(
                "the file became shorter while it was read", path=path, advice="read it again at rest"
            )
        offset += wanted
        yield block


def _has_nonfinite(block: bytes, dtype: str) -> bool:
    """Tell whether raw little-endian elements hold a NaN or an infinity; integers never do."""
    match dtype:
        case "F64" | "F32" | "F16":
            values: NDArray[Any] = np.frombuffer(block, dtype=_NUMPY_TYPES[dtype])
            return not bool(np.isfinite(values).all())
        case "C64":
            return not bool(np.isfinite(np.frombuffer(block, dtype="<f4")).all())
        case "BF16":
            return _has_exponent(np.frombuffer(block, dtype="<u2"), 0x7F80)
        case "F8_E5M2":
            return _has_exponent(np.frombuffer(block, dtype="u1"), 0x7C)
        case "F8_E4M3":
            return _has_exponent(np.frombuffer(block, dtype="u1"), 0x7F)
        case "F8_E8M0":
            return _has_exponent(np.frombuffer(block, dtype="u1"), 0xFF)
        case _:
            return False


def _has_exponent(values: NDArray[Any], mask: int) -> bool:
    """Tell whether any element has all bits of the mask set: the exponent that stands for NaN and infinity."""
    return bool(((values & mask) == mask).any())


def _invalid(
    problem: str,
    path: StrPath,
    *,
    place: str | None = None,
    expected: str | None = None,
    advice: str | None = None,
) -> InvalidDocumentError:
    return InvalidDocumentError(problem, path=path, place=place, expected=expected, advice=advice)
