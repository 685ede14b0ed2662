"""Faults at the storage seam: one operation fails in a chosen way, or the process dies around it.

`FaultFileSystem` counts the operations while it is watched and does to one of them what its mode says. It leaves out
real syncs, since what a killed process leaves is what the system holds; power cuts are `faults_power`'s.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from unittest.mock import patch

from ledger.records.events import Event, encode_event
from ledger.records.layout import LOG
from ledger.storage.chain import chain_line
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.log import EventLog
from tests.support.toy import Killed

CHANGING: Final = frozenset(
    {
        "write",
        "truncate",
        "fsync",
        "fdatasync",
        "fsync of the folder",
        "rename",
        "link",
        "unlink",
        "mkdir",
        "rmdir",
    }
)
"""Operations that change what a disk holds; `open` does when it creates a file."""
TAKING_SPACE: Final = frozenset({"write", "fsync", "fdatasync", "rename", "link", "mkdir"})


class Operation(NamedTuple):
    """One file operation that a writer asked for."""

    name: str
    path: str
    size: int
    """Bytes of a write, else 0."""
    creates: bool

    @property
    def changes(self) -> bool:
        """Whether it changes what the disk holds."""
        return self.name in CHANGING or self.creates

    @property
    def takes_space(self) -> bool:
        """Whether a full disk refuses it."""
        return self.name in TAKING_SPACE or self.creates


@dataclass(frozen=True)
class Mode:
    """One way in which an operation goes wrong."""

    name: str
    applies: Callable[[Operation], bool]
    kind: Literal["die", "error", "complete", "raise"]
    """Death of the process; an error that must be raised; a hitch that must be completed; another exception."""
    number: int = 0
    """The `errno`."""
    is_done: bool = False
    """The operation takes effect all the same."""
    is_partial: bool = False
    """A write leaves a part."""
    stays: bool = False
    """Every later operation that the mode applies to fails too."""
    exception: type[BaseException] = OSError


def _any(_operation: Operation) -> bool:
    return True


def _is_long_write(operation: Operation) -> bool:
    return operation.name == "write" and operation.size > 1


def _changes(operation: Operation) -> bool:
    return operation.changes


def _takes_space(operation: Operation) -> bool:
    return operation.takes_space


def _opens(operation: Operation) -> bool:
    return operation.name in ("open", "list")


def _reports_late(operation: Operation) -> bool:
    return operation.changes or operation.name == "close"


MODES: Final = (
    Mode("killed before", _any, "die"),
    Mode("killed after", _changes, "die", is_done=True),
    Mode("torn", _is_long_write, "die", is_partial=True),
    Mode("short write", _is_long_write, "complete", is_partial=True),
    Mode("EINTR", _any, "complete", errno.EINTR),
    Mode("EIO", _any, "error", errno.EIO),
    Mode("EIO, done", _reports_late, "error", errno.EIO, is_done=True),
    Mode("EIO stays", _changes, "error", errno.EIO, stays=True),
    Mode("ENOSPC", _takes_space, "error", errno.ENOSPC, is_partial=True, stays=True),
    Mode("EDQUOT", _takes_space, "error", errno.EDQUOT, is_partial=True),
    Mode("EROFS", _changes, "error", errno.EROFS, stays=True),
    Mode("EMFILE", _opens, "error", errno.EMFILE, stays=True),
    Mode("no memory", _changes, "raise", exception=MemoryError),
    Mode("second signal", _changes, "raise", is_done=True, exception=KeyboardInterrupt),
)
"""Behind an operation that changes nothing, the process dies as it does before the next one."""
MODE: Final = {mode.name: mode for mode in MODES}


@dataclass(frozen=True)
class Fault:
    """One mode at one watched operation; `length` is how much of a write takes effect where the mode leaves a part."""

    mode: str
    number: int
    length: int = 0


class FaultFileSystem(FileSystem):
    """The real file system without syncs, on which one watched operation goes wrong."""

    def __init__(self, fault: Fault | None = None, *, is_watched: bool = False) -> None:
        self.operations: list[Operation] = []
        """What was asked for while watched."""
        self.struck: Operation | None = None
        """The operation that went wrong."""
        self.on_strike: Callable[[], object] = lambda: None
        self.is_dead = False
        self._fault = fault
        self._mode = None if fault is None else MODE[fault.mode]
        self._is_watched = is_watched
        self._only: Callable[[str], bool] | None = None
        self._has_interrupted = False

    @property
    def has_struck(self) -> bool:
        """Whether something went wrong."""
        return self.struck is not None

    def watch(self, *, only: Callable[[str], bool] | None = None) -> None:
        """Count from here on, with `only` just the operations on certain paths."""
        self._is_watched, self._only = True, only

    def unwatch(self) -> None:
        """Count no more; what stays broken stays so."""
        self._is_watched = False

    def watches(self, path: str) -> bool:
        """Tell whether an operation on this path is counted now."""
        return self._is_watched and (self._only is None or self._only(path))

    def perform(
        self, operation: str, path: StrPath, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        """Do the operation, or what the fault makes of it."""

        def do() -> Any:
            return None if function in (os.fsync, os.fdatasync) else function(*arguments, **options)

        if self.is_dead:
            return self._bury(function, arguments)
        asked = _describe(operation, path, arguments)
        if self._is_due(asked):
            return self._strike(asked, do, arguments)
        if self.has_struck and self._mode is not None and self._mode.stays and self._mode.applies(asked):
            raise OSError(self._mode.number, os.strerror(self._mode.number))
        return do()

    def _is_due(self, asked: Operation) -> bool:
        if not self.watches(asked.path):
            return False
        if self._has_interrupted:  # the same operation again, completed after an interruption
            self._has_interrupted = False
            return False
        self.operations.append(asked)
        return self._fault is not None and self._fault.number == len(self.operations) - 1

    def _strike(self, asked: Operation, do: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        mode, fault = self._mode, self._fault
        if mode is None or fault is None or not mode.applies(asked):
            return do()
        self.struck = asked
        self.on_strike()
        result = None
        if mode.is_partial and asked.name == "write":
            descriptor, data = arguments
            result = os.write(descriptor, memoryview(data)[: fault.length])
        elif mode.is_done or (mode.number == errno.EINTR and asked.name == "close"):
            with suppress(OSError):
                do()
        elif asked.name == "close":
            do()  # a descriptor is gone whatever close reports
        return self._outcome(mode, asked, result)

    def _outcome(self, mode: Mode, asked: Operation, result: int | None) -> int | None:
        if mode.kind == "die":
            self.is_dead = True
            raise Killed
        if mode.kind == "raise":
            raise mode.exception(f"during {asked.name}")
        if mode.kind == "complete" and result is not None:
            self._has_interrupted = True
            return result
        self._has_interrupted = mode.number == errno.EINTR and asked.name != "close"
        raise OSError(mode.number, os.strerror(mode.number))

    def _bury(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Close what a dead process had open, as the system does, and do nothing else."""
        if function is not os.close:
            raise Killed
        os.close(*arguments)


def _describe(operation: str, path: StrPath, arguments: tuple[Any, ...]) -> Operation:
    size = len(arguments[1]) if operation == "write" else 0
    creates = operation == "open" and bool(arguments[1] & os.O_CREAT)
    return Operation(operation, os.fspath(path), size, creates)


@contextmanager
def diverted(fs: FileSystem) -> Iterator[None]:
    """Send what uses the real file system by default through `fs`."""
    before = vars(OS).get("perform")
    vars(OS)["perform"] = fs.perform
    try:
        yield
    finally:
        del vars(OS)["perform"]
        if before is not None:
            vars(OS)["perform"] = before


class LogWatch:
    """What was asked of a log and what it acknowledged, kept outside of it."""

    def __init__(self) -> None:
        self.acknowledged = b""
        """Lines whose append returned, in order."""
        self.attempted = b""
        """The same, and the first line whose append did not return."""
        self.is_tail_free = False
        """What stands behind the log's last newline need not be a part of a line."""
        self._has_failed = False

    @contextmanager
    def listening(self) -> Iterator[LogWatch]:
        """Follow every log that is written inside the block."""
        original = EventLog.append

        def append(log: EventLog, event: Event) -> Any:
            self._attempt(log, event)
            position = original(log, event)
            self.acknowledged = self.attempted
            return position

        with patch.object(EventLog, "append", append):
            yield self

    def _attempt(self, log: EventLog, event: Event) -> None:
        if self.attempted != self.acknowledged:
            self._has_failed = (
                True  # a log that failed writes nothing more; only its first failure may have left bytes
            )
        if not self._has_failed:
            self.attempted += chain_line(log._chain, encode_event(event))[0]


class Snapshot(dict[str, bytes | None]):
    """Every file of a folder with its bytes, every folder with None, by path below it."""

    @classmethod
    def of(cls, folder: Path) -> Snapshot:
        """Read a folder; an absent one is empty."""
        found = cls()
        for path in sorted(folder.rglob("*")):
            found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() else None
        return found

    @property
    def log(self) -> bytes:
        """The bytes of the log; none where it is absent."""
        return self.get(LOG) or b""
