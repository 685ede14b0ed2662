"""Digests of files and of tables of tensors, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from ledger.storage.canonical import digest_of
from ledger.storage.files import opened_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath

__all__ = ["FileDigest", "TensorDigest", "hash_file", "tensor_table_sha256"]

_BLOCK_BYTES: Final = 1 << 20


class FileDigest(NamedTuple):
    """A file's size and the SHA-256 digest of its bytes."""

    bytes: int
    sha256: str


class TensorDigest(Protocol):
    """What a tensor's digest is made of; `records.documents.TensorEntry` is one."""

    @property
    def dtype(self) -> str:
        """The name of its element type in safetensors, such as `BF16`."""
        ...

    @property
    def shape(self) -> Sequence[int]:
        """Its dimensions."""
        ...

    @property
    def sha256(self) -> str:
        """The digest of its little-endian bytes."""
        ...


def hash_file(
    path: StrPath,
    *,
    progress: Callable[[int], object] | None = None,
    limit: int | None = None,
    fs: FileSystem = OS,
) -> FileDigest:
    """Return a regular file's size and digest. `progress` is called with the bytes of each block that is done.

    With a `limit`, only so many bytes at its start count.

    Raises:
        EvidenceMissingError: there is no such file.
        UnsafeError: it is no regular file.
        StorageError: the system refused.
    """
    digest = hashlib.sha256()
    total = 0
    buffer = memoryview(bytearray(_BLOCK_BYTES))
    with opened_regular_file(path, fs=fs) as descriptor:
        while count := fs.read_into(descriptor, _part(buffer, limit, total), path=path):
            digest.update(buffer[:count])
            total += count
            if progress is not None:
                progress(count)
    return FileDigest(total, digest.hexdigest())


def _part(buffer: memoryview, limit: int | None, total: int) -> memoryview:
    return buffer if limit is None else buffer[: limit - total]


def tensor_table_sha256(entries: Mapping[str, TensorDigest]) -> str:
    """Return the digest of a set of tensors: of the RFC 8785 form of `{tensor: {dtype, shape, sha256}}`."""
    return digest_of(
        {
            name: {"dtype": entry.dtype, "shape": list(entry.shape), "sha256": entry.sha256}
            for name, entry in entries.items()
        }
    )
