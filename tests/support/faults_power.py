"""Power cuts: what a disk may hold after one, worked out from the operations that a command asked for.

The model is harsher than any common file system. Data that was not synced may be missing from any byte on, or be
NULs; each entry of a folder that was not synced may be there or not, independently of the others; a rename moves both
of its entries or none. What was synced is there. `DiskRecorder` does the operations and keeps them, `faults_disk`
works out what may be left.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ledger.records.events import Event, Train
from ledger.storage.filesystem import FileSystem, StrPath
from ledger.storage.log import EventLog
from tests.support.faults import LogWatch


@dataclass(frozen=True)
class Step:
    """One thing that happened to the disk, or a promise that was made."""

    kind: str
    """`write`, `truncate`, `sync`, `enter`, `remove`, `move`, `sync folder`, `promise` or `promise log`."""
    path: str = ""
    """Below the root; for an entry, the entry."""
    inode: int = 0
    data: bytes = b""
    offset: int = 0
    source: str = ""
    """The entry that a move takes away."""
    is_new: bool = False
    """The entry names a file or folder that did not exist."""
    is_folder: bool = False


class DiskRecorder(FileSystem):
    """The real file system without syncs, keeping every step that is taken below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.steps: list[Step] = []

    def watch(self, *, only: Callable[[str], bool] | None = None) -> None:
        """Nothing is left out: the power may go at any time."""

    def unwatch(self) -> None:
        """Nothing is left out."""

    def promise(self, path: Path) -> None:
        """Remember that from now on something must stand at this path."""
        self.steps.append(Step("promise", self._below(path)))

    def promise_log(self, lines: bytes) -> None:
        """Remember that from now on the log must go on with these lines behind those that were there before."""
        self.steps.append(Step("promise log", data=lines))

    def perform(
        self, operation: str, path: StrPath, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        """Do the operation and keep what it did to the disk."""
        if function in (os.fsync, os.fdatasync):
            self._keep_sync(path, arguments[0])
            return None
        is_new = operation == "open" and not os.path.lexists(path)
        offset = _position(arguments[0]) if operation == "write" else 0
        result = function(*arguments, **options)
        if operation == "write":
            descriptor, data = arguments
            self._add("write", path, os.fstat(descriptor), data=bytes(data[:result]), offset=offset)
        elif operation == "truncate":
            self._add("truncate", path, os.fstat(arguments[0]), offset=arguments[1])
        elif operation in ("unlink", "rmdir"):
            self.steps.append(Step("remove", self._below(path)))
        elif is_new or operation in ("mkdir", "link"):
            self._add("enter", path, Path(path).stat(), is_new=operation != "link")
        elif operation == "rename":
            self._add("move", path, Path(path).stat(), source=self._below(arguments[0]))
        return result

    def _keep_sync(self, path: StrPath, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._add("sync folder" if stat.S_ISDIR(status.st_mode) else "sync", path, status)

    def _add(self, kind: str, path: StrPath, status: os.stat_result, **other: Any) -> None:
        is_folder = stat.S_ISDIR(status.st_mode)
        self.steps.append(Step(kind, self._below(path), status.st_ino, is_folder=is_folder, **other))

    def _below(self, path: StrPath) -> str:
        return os.path.relpath(path, self.root)


@contextmanager
def promised_logs(recorder: DiskRecorder) -> Iterator[LogWatch]:
    """Hold every log to its word: what is synced is all but `train` events, and everything before a sync."""
    watch = LogWatch()
    with watch.listening():
        append, sync = EventLog.append, EventLog.sync

        def promising_append(log: EventLog, event: Event) -> Any:
            position = append(log, event)
            if not isinstance(event, Train):
                recorder.promise_log(watch.acknowledged)
            return position

        def promising_sync(log: EventLog) -> None:
            sync(log)
            recorder.promise_log(watch.attempted)

        with (
            patch.object(EventLog, "append", promising_append),
            patch.object(EventLog, "sync", promising_sync),
        ):
            yield watch


def _position(descriptor: int) -> int:
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
        return os.fstat(descriptor).st_size
    return os.lseek(descriptor, 0, os.SEEK_CUR)
