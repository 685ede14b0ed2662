"""Opening and reading files that others may have put in place of ours.

A record is a regular file. A link, a pipe, a device or a folder in its place is refused before a byte is read, and
nothing here waits: a pipe without a writer cannot hang a reader.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ledger.errors import EvidenceMissingError, InvalidDocumentError, LedgerError, StorageError, UnsafeError
from ledger.storage.filesystem import OS, FileSystem, StrPath, error_number

__all__ = [
    "READ_FLAGS",
    "ensure_folder",
    "ensure_folders",
    "files_below",
    "is_folder",
    "is_own_file",
    "is_own_folder",
    "open_regular_file",
    "opened_regular_file",
    "read_regular_file",
    "real_path",
    "require_own_file",
    "require_own_folder",
]

READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""How records are opened for reading: no final link is followed, nothing waits."""


def open_regular_file(path: StrPath, *, flags: int = READ_FLAGS, fs: FileSystem = OS) -> int:
    """Open a regular file and return its descriptor.

    Raises:
        EvidenceMissingError: nothing is at the path, or can be.
        UnsafeError: it is a link, folder, pipe, socket or device.
        StorageError: the system refused.
    """
    try:
        descriptor = fs.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    except StorageError as error:
        raise _explain_refusal(error, path, fs=fs) from error
    try:
        _require_regular(fs.fstat(descriptor, path=path).st_mode, path)
    except BaseException:
        with suppress(StorageError):  # the refusal is what to report
            fs.close(descriptor, path=path)
        raise
    return descriptor


@contextmanager
def opened_regular_file(path: StrPath, *, flags: int = READ_FLAGS, fs: FileSystem = OS) -> Iterator[int]:
    """Open a regular file for the length of a `with` block; errors as `open_regular_file`."""
    descriptor = open_regular_file(path, flags=flags, fs=fs)
    with fs.closing(descriptor, path=path):
        yield descriptor


def read_regular_file(path: StrPath, *, max_bytes: int, fs: FileSystem = OS) -> bytes:
    """Return the content of a regular file, which may hold at most `max_bytes`.

    Raises:
        InvalidDocumentError: the file is larger; nothing of it was read.
        EvidenceMissingError, UnsafeError, StorageError: as `open_regular_file`.
    """
    with opened_regular_file(path, fs=fs) as descriptor:
        size = fs.fstat(descriptor, path=path).st_size
        if size > max_bytes:
            raise InvalidDocumentError(
                f"the file holds {size:,} bytes", path=path, expected=f"at most {max_bytes:,} bytes"
            )
        parts = []
        remaining = max_bytes + 1
        while remaining and (part := fs.read(descriptor, remaining, path=path)):
            parts.append(part)
            remaining -= len(part)
    if not remaining:
        raise StorageError(
            "the file grew while it was read", path=path, advice="read it again when it is at rest"
        )
    return b"".join(parts)


def ensure_folder(path: StrPath, *, fs: FileSystem = OS) -> bool:
    """Make a folder durable under its parent unless it exists; returns whether it was made.

    Raises:
        UnsafeError: something that is no folder stands there.
        StorageError: the system refused.
    """
    try:
        fs.mkdir(path)
    except StorageError as error:
        if error_number(error) != errno.EEXIST:
            raise
        kind = fs.stat(path).st_mode
        if not stat.S_ISDIR(kind):
            raise _unsafe(kind, path, wanted="a folder") from error
        return False
    fs.sync_directory(os.path.dirname(os.path.abspath(path)))  # noqa: PTH100, PTH120 - text, not always a Path
    return True


def is_folder(path: StrPath, *, fs: FileSystem = OS) -> bool:
    """Tell whether a path leads to a folder, links followed; false where nothing stands.

    Raises:
        StorageError: the system refused to look.
    """
    found = fs.look(f"{os.fspath(path)}/.")
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_own_folder(path: StrPath, *, fs: FileSystem = OS) -> bool:
    """Tell whether a folder itself stands at a path, no link to one; errors as `is_folder`."""
    found = fs.look(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_own_file(path: StrPath, *, fs: FileSystem = OS) -> bool:
    """Tell whether a regular file itself stands at a path, no link to one; errors as `is_folder`."""
    found = fs.look(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def files_below(
    folder: StrPath, *, leaves_out: Callable[[str], bool] = lambda _: False, fs: FileSystem = OS
) -> list[str]:
    """Return the paths below a folder, sorted, of what is no folder; folders that `leaves_out` names are not entered.

    A link to a file counts; a link to a folder is neither returned nor followed.

    Raises:
        StorageError: the system refused to list a folder; nothing is left out in silence.
    """
    root, found, pending = os.fspath(folder), [], [""]
    while pending:
        below = pending.pop()
        for name in fs.list_directory(f"{root}/{below}"):
            path = f"{below}{name}"
            entry = fs.look(f"{root}/{path}")
            if entry is None:  # it went since
                continue
            if stat.S_ISDIR(entry.st_mode):
                pending += [] if leaves_out(name) else [f"{path}/"]
            elif not (stat.S_ISLNK(entry.st_mode) and is_folder(f"{root}/{path}", fs=fs)):
                found.append(path)
    return sorted(found)


def real_path(path: StrPath) -> Path:
    """Return where a path leads through every link; one that leads round in a circle stays as it is.

    What then opens it without following links refuses it.
    """
    try:
        return Path(path).resolve()
    except RuntimeError:  # how this library tells of a circle
        return Path(path).absolute()


def require_own_folder(path: StrPath, *, fs: FileSystem = OS) -> None:
    """Make sure that a folder itself stands at a path, no link to one.

    Raises:
        UnsafeError: a link or something else that is no folder stands there.
        StorageError: there is nothing, or the system refused.
    """
    kind = fs.stat(path).st_mode
    if not stat.S_ISDIR(kind):
        raise _unsafe(kind, path, wanted="a folder")


def require_own_file(path: StrPath, *, fs: FileSystem = OS) -> None:
    """Make sure that a regular file itself stands at a path, no link to one.

    Raises:
        UnsafeError: a link or something else that is no regular file stands there.
        StorageError: there is nothing, or the system refused.
    """
    _require_regular(fs.stat(path).st_mode, path)


def _require_regular(mode: int, path: StrPath) -> None:
    if not stat.S_ISREG(mode):
        raise _unsafe(mode, path)


def ensure_folders(path: StrPath, *, fs: FileSystem = OS) -> list[Path]:
    """Make a folder and every missing one above it, each durable under its parent; returns those made, in order.

    Raises:
        UnsafeError: something that is no folder stands in the way.
        StorageError: the system refused.
    """
    folder = Path(path)
    missing = [one for one in (folder, *folder.parents) if not fs.exists(one)][::-1]
    return [one for one in missing if ensure_folder(one, fs=fs)]


def _explain_refusal(error: StorageError, path: StrPath, *, fs: FileSystem) -> LedgerError:
    """Say what stood in the way of opening a file."""
    number = error_number(error)
    if number in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
        return EvidenceMissingError("there is no such file", path=path, advice="check the path")
    if number in {errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.ENODEV}:
        found = fs.look(path)
        if found is None:  # a folder above is a link that leads to itself
            return EvidenceMissingError("there is no such file", path=path, advice="check the path")
        if not stat.S_ISREG(found.st_mode):
            return _unsafe(found.st_mode, path)
    return error


def _unsafe(mode: int, path: StrPath, *, wanted: str = "a regular file") -> UnsafeError:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFREG: "a file",
    }
    found = kinds.get(stat.S_IFMT(mode), "something else")
    return UnsafeError(
        f"{found} stands here and is not followed",
        path=path,
        expected=wanted,
        advice=f"put {wanted} with its own content in its place",
    )
