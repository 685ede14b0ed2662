"""Files and folders that are there completely or not at all, also after a crash.

Content is written under a temporary name beside its place (`.<name>.tmp-<16 hex digits>`), synced, given its name in
one step, and the folder is synced. What a crash leaves is the old state, the new one, or an ignorable temporary.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ledger.errors import RefusedError, StorageError
from ledger.storage.files import opened_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath, error_number

__all__ = [
    "create_file",
    "is_temporary_name",
    "publish_folder",
    "replace_file",
    "sync_file",
    "temporary_path",
    "write_new_file",
]

_TEMPORARY: Final = re.compile(r"\..+\.tmp-[0-9a-f]{16}", re.DOTALL)
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_BLOCK_BYTES: Final = 1 << 20


def is_temporary_name(name: str) -> bool:
    """Tell whether a file or folder name is one of ours that a crash may leave behind."""
    return _TEMPORARY.fullmatch(name) is not None


def temporary_path(path: StrPath) -> Path:
    """Return a new temporary name beside `path`; nothing is created."""
    target = Path(path)
    return target.with_name(f".{target.name}.tmp-{secrets.token_hex(8)}")


def replace_file(path: StrPath, data: bytes, *, fs: FileSystem = OS) -> None:
    """Write a file whole, in place of the old one if there is one.

    Raises:
        StorageError: the system refused; the old file is still there, whole.
    """
    with _temporary_file(path, [data], fs=fs) as (temporary, _):
        fs.rename(temporary, path)
    fs.sync_directory(Path(path).parent)


def create_file(path: StrPath, data: bytes | Iterable[bytes], *, fs: FileSystem = OS) -> bool:
    """Write a new file whole; returns whether it was written, false when it was there with the same content.

    Raises:
        RefusedError: a file of that name exists with other content; it is left alone.
        StorageError: the system refused; a file of that name is absent or whole.
    """
    chunks = [data] if isinstance(data, bytes) else data
    created = True
    with _temporary_file(path, chunks, fs=fs) as (temporary, sha256):
        try:
            fs.link(temporary, path)
        except StorageError as error:
            if error_number(error) != errno.EEXIST:
                raise
            _require_same_content(path, sha256, fs=fs)
            created = False
        fs.unlink(temporary)
    fs.sync_directory(Path(path).parent)
    return created


def write_new_file(path: StrPath, data: bytes, *, fs: FileSystem = OS) -> None:
    """Write and sync a file that is new in a temporary folder; `publish_folder` makes its name last.

    Raises:
        StorageError: the system refused; a part of the file may be left.
    """
    with fs.opened(path, _NEW_FILE) as descriptor:
        fs.write(descriptor, data, path=path)
        fs.sync(descriptor, path=path)


def publish_folder(temporary: StrPath, path: StrPath, *, fs: FileSystem = OS) -> None:
    """Give a completed temporary folder, whose files are synced already, its final name.

    Raises:
        RefusedError: something of that name exists.
        StorageError: the system refused.
    """
    if fs.exists(path):
        raise RefusedError("it exists already and is not replaced", path=path, advice="move it away first")
    fs.sync_directory(temporary)
    fs.rename(temporary, path)
    fs.sync_directory(Path(path).parent)


def sync_file(path: StrPath, *, fs: FileSystem = OS) -> None:
    """Force a regular file that something else wrote onto the device.

    Raises:
        EvidenceMissingError, UnsafeError, StorageError: as `files.open_regular_file`, or the sync failed.
    """
    with opened_regular_file(path, fs=fs) as descriptor:
        fs.sync(descriptor, path=path)


@contextmanager
def _temporary_file(path: StrPath, chunks: Iterable[bytes], *, fs: FileSystem) -> Iterator[tuple[Path, str]]:
    """Write a synced temporary file and hand over its path and digest; it is removed if the block fails."""
    temporary = temporary_path(path)
    descriptor = fs.open(temporary, _NEW_FILE)
    try:
        digest = hashlib.sha256()
        with fs.closing(descriptor, path=temporary):
            for chunk in chunks:
                digest.update(chunk)
                fs.write(descriptor, chunk, path=temporary)
            fs.sync(descriptor, path=temporary)
        yield temporary, digest.hexdigest()
    except BaseException:
        # The first error is the one to report; what is left says by its name that it may be removed.
        with suppress(StorageError):
            fs.unlink(temporary)
        raise


def _require_same_content(path: StrPath, sha256: str, *, fs: FileSystem) -> None:
    """Compare an existing file by digest and sync it: it may stem from a run that was killed before its sync."""
    digest = hashlib.sha256()
    with opened_regular_file(path, fs=fs) as descriptor:
        while block := fs.read(descriptor, _BLOCK_BYTES, path=path):
            digest.update(block)
        fs.sync(descriptor, path=path)
    if digest.hexdigest() != sha256:
        raise RefusedError(
            "it exists already with other content and is not replaced",
            path=path,
            expected=f"SHA-256 {sha256}",
            advice="move it away and find out who changed it",
        )
