"""What a file system really does: each probe tries one thing that the ledger relies on, in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from ledger.errors import StorageError
from ledger.storage.files import read_regular_file
from ledger.storage.filesystem import FileSystem
from ledger.storage.mounts import is_case_insensitive

__all__ = ["PROBES", "Check", "CheckStatus", "run_probe"]

CheckStatus = Literal["ok", "warning", "failed"]

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_REPLACEMENTS: Final = 50
_LITTLE_SPACE_BYTES: Final = 1 << 30
_SECONDS: Final = 30
_LOCKER: Final = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit(11)
"""
_REFUSED: Final = 11


@dataclass(frozen=True, kw_only=True)
class Check:
    """What one probe found."""

    name: str
    status: CheckStatus
    detail: str


def run_probe(name: str, folder: Path, *, fs: FileSystem) -> Check:
    """Try one thing in an empty folder. What the system refuses is a failed check, not an error."""
    try:
        status, detail = PROBES[name](folder, fs)
    except StorageError as error:
        return Check(name=name, status="failed", detail=str(error))
    return Check(name=name, status=status, detail=detail)


def _file_sync(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    path = folder / "synced"
    with fs.opened(path, _NEW) as descriptor:
        fs.write(descriptor, b"content", path=path)
        fs.sync_data(descriptor, path=path)
        fs.sync(descriptor, path=path)
    return "ok", "fsync and fdatasync of a file succeed"


def _folder_sync(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    if fs.try_sync_directory(folder):
        return "ok", "fsync of a folder succeeds"
    return (
        "warning",
        "folders cannot be synced: that a new or renamed file survives a power cut is not provable here",
    )


def _rename(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    """Replace a file many times while another thread looks: it must find one version or the other, whole."""
    target, source = folder / "target", folder / "source"
    _write(target, b"a" * 64, fs=fs)
    seen: list[str] = []
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(target, done, seen))
    watcher.start()
    try:
        for number in range(_REPLACEMENTS):
            if seen:
                break
            _write(source, (b"a" if number % 2 else b"b") * 64, fs=fs)
            fs.rename(source, target)
    finally:
        done.set()
        watcher.join()
    if seen:
        return "failed", f"while a file was replaced, a reader found it {seen[0]}"
    return "ok", f"a file was replaced {_REPLACEMENTS} times and never seen absent or half"


def _watch(target: Path, done: threading.Event, seen: list[str]) -> None:
    while not done.is_set() and not seen:
        try:
            content = target.read_bytes()
        except FileNotFoundError:
            seen.append("absent")
        except OSError as error:
            seen.append(f"unreadable ({error.strerror})")
        else:
            if content not in (b"a" * 64, b"b" * 64):
                seen.append("half written")


def _link(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    first, second = folder / "first", folder / "second"
    _write(first, b"content", fs=fs)
    _write(second, b"other", fs=fs)
    fs.link(first, folder / "third")
    try:
        fs.link(first, second)
    except StorageError as error:
        if isinstance(error.__cause__, FileExistsError):
            return "ok", "a second name can be given, and never takes the place of an existing file"
        raise
    return "failed", "giving a second name replaced an existing file"


def _lock(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    path = folder / "lock"
    with fs.opened(path, os.O_RDWR | os.O_CREAT) as descriptor:
        if not fs.lock(descriptor, path=path):
            return "failed", "a lock that nobody holds is refused"
        if _try_lock_elsewhere(path) != _REFUSED:
            return "failed", "two processes hold the same lock: a second writer would not be noticed"
    if _try_lock_elsewhere(path) != 0:
        return "failed", "a lock stays when its holder has let go"
    return "ok", "a lock keeps another process of this machine out, and is free when its holder ends"


def _try_lock_elsewhere(path: Path) -> int:
    command = [sys.executable, "-I", "-S", "-c", _LOCKER, str(path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS)
    return done.returncode


def _append(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    path = folder / "appended"
    flags = os.O_WRONLY | os.O_APPEND
    with fs.opened(path, flags | os.O_CREAT | os.O_EXCL) as one, fs.opened(path, flags) as other:
        for descriptor, data in ((one, b"1"), (other, b"2"), (one, b"3"), (other, b"4")):
            fs.write(descriptor, data, path=path)
    if read_regular_file(path, max_bytes=64, fs=fs) == b"1234":
        return "ok", "appending through two descriptors overwrites nothing"
    return "failed", "appending through two descriptors overwrites what the other wrote"


def _identity(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    """The log and the lock are recognised by device and inode, which must stay while a file is open."""
    path, moved = folder / "known", folder / "moved"
    with fs.opened(path, _NEW) as descriptor:
        opened = fs.fstat(descriptor, path=path)
        fs.write(descriptor, b"content", path=path)
        fs.sync(descriptor, path=path)
        fs.rename(path, moved)
        named = fs.stat(moved)
    if (named.st_dev, named.st_ino, named.st_size) == (opened.st_dev, opened.st_ino, len(b"content")):
        return "ok", "an open file keeps its identity and its size is told at once"
    return (
        "failed",
        "an open file changes its identity or its size is told late: no replaced file would be noticed",
    )


def _case(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    if is_case_insensitive(folder, fs=fs):
        return "failed", "names that differ only by case are the same file"
    return "ok", "names that differ only by case are different files"


def _space(folder: Path, fs: FileSystem) -> tuple[CheckStatus, str]:
    free = fs.free_bytes(folder)
    status: CheckStatus = "warning" if free < _LITTLE_SPACE_BYTES else "ok"
    return status, f"{free / 2**30:,.1f} GiB are free"


def _write(path: Path, data: bytes, *, fs: FileSystem) -> None:
    with fs.opened(path, _NEW) as descriptor:
        fs.write(descriptor, data, path=path)


PROBES: Final[dict[str, Callable[[Path, FileSystem], tuple[CheckStatus, str]]]] = {
    "file sync": _file_sync,
    "folder sync": _folder_sync,
    "rename": _rename,
    "hard link": _link,
    "lock": _lock,
    "append": _append,
    "identity": _identity,
    "case": _case,
    "free space": _space,
}
"""Name of each probe and what it does: it gets an empty folder and returns a status and a sentence."""
