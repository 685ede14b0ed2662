"""The one seam through which every file operation passes.

`FileSystem` turns each failure of the system into a `StorageError` that names path, operation, reason and remedy, and
completes what the system may leave half done: interrupted calls and short writes. It never retries a failed write
or sync: after a failed sync nobody knows what is on disk. Where a file system cannot sync folders at all, that is a
`DurabilityWarning`. A test makes single operations fail by overriding `FileSystem.perform`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeAlias, TypeVar

from ledger.errors import StorageError, UnsafeError

__all__ = ["OS", "DurabilityWarning", "FileSystem", "StrPath", "error_number", "folder_lost"]

StrPath: TypeAlias = str | os.PathLike[str]
"""A path as text or as a path object."""

_P = ParamSpec("_P")
_T = TypeVar("_T")

_ADVICE: Final = {
    errno.EACCES: "check the permissions of the file and of the folders above it",
    errno.EPERM: "check the permissions and the attributes of the file and of the folders above it",
    errno.EROFS: "the file system is read-only: mount it writable, or write elsewhere",
    errno.ENOSPC: "the file system is full: free some space, then run this again",
    errno.EDQUOT: "the disk quota is used up: free some space, then run this again",
    errno.EFBIG: "the file would exceed the size limit: raise `ulimit -f`",
    errno.EIO: "the device reported an error: check the disk before you trust anything on it",
    errno.EMFILE: "this process has too many open files: raise `ulimit -n`",
    errno.ENFILE: "the system has too many open files: close some programs, then run this again",
    errno.ENOENT: "check that the path exists and was not moved or removed meanwhile",
    errno.ENOTDIR: "a folder is needed in this place, a file stands there",
    errno.EISDIR: "a file is needed in this place, a folder stands there",
    errno.EEXIST: "it exists already and is not replaced: choose another name or remove it yourself",
    errno.ENOTEMPTY: "the folder is not empty and is not replaced",
    errno.EXDEV: "both names must lie on one file system",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ESTALE: "the network file system lost the file: check the server, then run this again",
    errno.ENOLCK: "the file system offers no locks: keep runs on a local file system",
    errno.EINVAL: "the file system does not support this: keep runs on a local file system",
    errno.ENOTSUP: "the file system does not support this: keep runs on a local file system",
}
_DEFAULT_ADVICE: Final = "nothing was retried; solve this, then run it again"

_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EBADF})
"""What a file system answers that has no sync for folders; a device that failed answers otherwise."""

_NOTHING_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG})
"""What a system answers that looked for a path and found nothing at it, in contrast to one that could not look."""

_unprovable_devices: set[int] = set()
"""Devices whose folders cannot be synced and that a warning has named."""


class DurabilityWarning(UserWarning):
    """What was written may not survive a power cut, and nobody here can tell."""


class FileSystem:
    """The system's file operations, each with its errors made readable.

    Every method raises `StorageError` when the system refuses. `descriptor` is an open file's number; `path` beside
    it only serves the message.
    """

    def perform(
        self,
        operation: str,  # noqa: ARG002 - for those who override this method
        path: StrPath,  # noqa: ARG002
        function: Callable[_P, _T],
        *arguments: _P.args,
        **options: _P.kwargs,
    ) -> _T:
        """Do one operation. All of them come through here, so a test that overrides this sees and breaks each."""
        return function(*arguments, **options)

    def open(self, path: StrPath, flags: int, *, mode: int = 0o666) -> int:
        """Open a file and return its descriptor, which is not passed on to other programs."""
        return self._call("open", path, os.open, os.fspath(path), flags | os.O_CLOEXEC, mode)

    def close(self, descriptor: int, *, path: StrPath) -> None:
        """Close a file. It is closed also when this raises; an interrupted close is complete on Linux."""
        try:
            self.perform("close", path, os.close, descriptor)
        except InterruptedError:
            return
        except OSError as error:
            raise _storage_error(error, "close", path) from error

    @contextmanager
    def opened(self, path: StrPath, flags: int, *, mode: int = 0o666) -> Iterator[int]:
        """Open a file for the length of a `with` block; an error inside outranks one of closing."""
        descriptor = self.open(path, flags, mode=mode)
        with self.closing(descriptor, path=path):
            yield descriptor

    @contextmanager
    def closing(self, descriptor: int, *, path: StrPath) -> Iterator[None]:
        """Close an open file at the end of a `with` block; an error inside outranks one of closing."""
        try:
            yield
        except BaseException as error:
            try:
                self.close(descriptor, path=path)
            except StorageError as second:
                error.add_note(f"then also: {second}")
            raise
        self.close(descriptor, path=path)

    def read(self, descriptor: int, count: int, *, path: StrPath) -> bytes:
        """Read at most `count` bytes; empty at the end of the file."""
        return self._call("read", path, os.read, descriptor, count)

    def read_into(self, descriptor: int, buffer: bytearray | memoryview, *, path: StrPath) -> int:
        """Read into a buffer and return how many bytes came; 0 at the end of the file."""
        return self._call("read", path, os.readv, descriptor, [buffer])

    def pread(self, descriptor: int, count: int, offset: int, *, path: StrPath) -> bytes:
        """Read at most `count` bytes from `offset` without moving the file's position."""
        return self._call("pread", path, os.pread, descriptor, count, offset)

    def write(self, descriptor: int, data: bytes | memoryview, *, path: StrPath) -> None:
        """Write all of `data`; a short write is completed."""
        written = self._call("write", path, os.write, descriptor, data)
        while written < len(data):
            more = self._call("write", path, os.write, descriptor, memoryview(data)[written:])
            if more == 0:
                raise _storage_error(OSError(errno.EIO, "the system accepted no more bytes"), "write", path)
            written += more

    def truncate(self, descriptor: int, size: int, *, path: StrPath) -> None:
        """Cut (or extend) an open file to `size` bytes."""
        self._call("truncate", path, os.ftruncate, descriptor, size)

    def sync(self, descriptor: int, *, path: StrPath) -> None:
        """Force a file's content and its metadata onto the device."""
        self._call("fsync", path, os.fsync, descriptor)

    def sync_data(self, descriptor: int, *, path: StrPath) -> None:
        """Force a file's content, and what is needed to find it, onto the device."""
        self._call("fdatasync", path, os.fdatasync, descriptor)

    def sync_directory(self, path: StrPath) -> None:
        """Force a folder's entries onto the device, so that a new or renamed name survives a power cut.

        Where the file system cannot do that, a `DurabilityWarning` says so, once for each device.
        """
        if self.try_sync_directory(path):
            return
        device = self.stat(path).st_dev
        if device not in _unprovable_devices:
            _unprovable_devices.add(device)
            warnings.warn(
                f"{os.fspath(path)}: this file system cannot sync folders: durability is not provable here",
                DurabilityWarning,
                stacklevel=3,
            )

    def try_sync_directory(self, path: StrPath) -> bool:
        """Force a folder's entries onto the device; false where the file system cannot do that at all."""
        with self.opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            try:
                self._call("fsync of the folder", path, os.fsync, descriptor)
            except StorageError as error:
                if error_number(error) not in _CANNOT_SYNC:
                    raise
                return False
        return True

    def lock(self, descriptor: int, *, path: StrPath, shared: bool = False) -> bool:
        """Try to take the whole-file lock without waiting; false when another process holds it."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            self._call("lock", path, fcntl.flock, descriptor, kind | fcntl.LOCK_NB)
        except StorageError as error:
            if error_number(error) in {errno.EWOULDBLOCK, errno.EACCES}:
                return False
            raise
        return True

    def rename(self, source: StrPath, target: StrPath) -> None:
        """Give a file or folder another name; a file of that name is replaced in one step."""
        self._call("rename", target, os.rename, os.fspath(source), os.fspath(target))

    def link(self, source: StrPath, target: StrPath) -> None:
        """Give a file a second name, which must not exist."""
        self._call("link", target, os.link, os.fspath(source), os.fspath(target))

    def unlink(self, path: StrPath) -> None:
        """Remove a file's name."""
        self._call("unlink", path, os.unlink, os.fspath(path))

    def mkdir(self, path: StrPath) -> None:
        """Make a folder, which must not exist."""
        self._call("mkdir", path, os.mkdir, os.fspath(path))

    def rmdir(self, path: StrPath) -> None:
        """Remove an empty folder."""
        self._call("rmdir", path, os.rmdir, os.fspath(path))

    def list_directory(self, path: StrPath) -> list[str]:
        """Return the names in a folder, sorted, so that no order depends on the file system."""
        return sorted(self._call("list", path, os.listdir, os.fspath(path)))

    def stat(self, path: StrPath, *, directory: int | None = None) -> os.stat_result:
        """Describe what stands at a path, never following a final link.

        With an open `directory`, what the path's last name means in there; then the path only serves the message.
        """
        place = os.fspath(path) if directory is None else os.path.basename(os.fspath(path))  # noqa: PTH119 - text
        return self._call("stat", path, os.stat, place, dir_fd=directory, follow_symlinks=False)

    def look(self, path: StrPath, *, directory: int | None = None) -> os.stat_result | None:
        """Describe what stands at a path as `stat` does; `None` where nothing does, whatever its folders are."""
        try:
            return self.stat(path, directory=directory)
        except StorageError as error:
            if error_number(error) in _NOTHING_THERE:
                return None
            raise

    def fstat(self, descriptor: int, *, path: StrPath) -> os.stat_result:
        """Describe an open file."""
        return self._call("fstat", path, os.fstat, descriptor)

    def free_bytes(self, path: StrPath) -> int:
        """Return how many bytes a user may still write to the file system that holds a path."""
        found = self._call("statvfs", path, os.statvfs, os.fspath(path))
        return found.f_bavail * found.f_frsize

    def locate(self, directory: int, *, path: StrPath) -> StrPath:
        """Return where an open folder lies now: `path`, or where it was moved to.

        Raises:
            StorageError: it was deleted, or the system does not tell where it is.
        """
        opened = self.fstat(directory, path=path)
        if opened.st_nlink == 0:
            raise folder_lost(path)
        if self._names(path, opened):
            return path
        moved = self._call("find the folder", path, os.readlink, f"/proc/self/fd/{directory}")
        if self._names(moved, opened):
            return moved
        raise folder_lost(path)

    def _names(self, path: StrPath, opened: os.stat_result) -> bool:
        """Tell whether a path, its links followed, leads to an open folder."""
        found = self.look(f"{os.fspath(path)}/.")
        return found is not None and (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)

    def exists(self, path: StrPath) -> bool:
        """Tell whether anything, a dangling link included, stands at a path."""
        return self.look(path) is not None

    def _call(
        self,
        operation: str,
        path: StrPath,
        function: Callable[_P, _T],
        *arguments: _P.args,
        **options: _P.kwargs,
    ) -> _T:
        while True:
            try:
                return self.perform(operation, path, function, *arguments, **options)
            except InterruptedError:
                continue
            except OSError as error:
                raise _storage_error(error, operation, path) from error
            except ValueError as error:  # a NUL inside a path, a text that no file name can hold
                raise UnsafeError(f"this is no usable path: {error}", path=repr(os.fspath(path))) from error


OS: Final = FileSystem()
"""The real file system."""


def error_number(error: StorageError) -> int | None:
    """Return the system's `errno` behind a `StorageError`, where there is one."""
    cause = error.__cause__
    return cause.errno if isinstance(cause, OSError) else None


def folder_lost(path: StrPath) -> StorageError:
    """Return the error for a folder that a writer has open and that no path leads to any more."""
    return StorageError(
        "the folder was deleted, or moved to another file system, while it was being written to",
        path=os.path.abspath(path),  # noqa: PTH100 - text, not always a Path
        advice="nothing more was written, and what was logged went with it; put it back from where it was moved "
        "to, or from a copy, then resume",
    )


def _storage_error(error: OSError, operation: str, path: StrPath) -> StorageError:
    number = error.errno
    name = "" if number is None else f" [{errno.errorcode.get(number, number)}]"
    reason = error.strerror or str(error) or type(error).__name__
    advice = _DEFAULT_ADVICE if number is None else _ADVICE.get(number, _DEFAULT_ADVICE)
    return StorageError(f"could not {operation}: {reason}{name}", path=path, advice=advice)
