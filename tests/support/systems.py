"""File systems for tests: one without syncs, and one on which a chosen operation fails or the process dies."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from ledger.records.layout import LOG
from ledger.storage.filesystem import FileSystem, StrPath
from tests.support.toy import Killed

Fault = Literal["refused", "full", "killed", "killed after"]
"""What happens to the chosen operation.

`refused`: an input/output error, nothing done. `full`: no space; a write leaves its first half. `killed`: the process
dies before it, a write leaves its first half. `killed after`: the process dies when it is done.
"""


class QuickFileSystem(FileSystem):
    """The real file system without its syncs: what the system itself holds is all that these tests look at."""

    def perform(
        self, operation: str, path: StrPath, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        """Do the operation unless it is a sync."""
        if function in (os.fsync, os.fdatasync):
            return None
        return super().perform(operation, path, function, *arguments, **options)


class FaultyFileSystem(QuickFileSystem):
    """Counts the operations and breaks one of them; a dead process does nothing ever after."""

    def __init__(self) -> None:
        self.tried: list[tuple[str, str]] = []
        """Operation and file name of everything that was asked for, in order."""
        self.done: list[tuple[str, str]] = []
        """The same of what was done."""
        self.log = b""
        """What was wholly written to logs."""
        self._countdown: int | None = None
        self._fault: Fault = "refused"
        self._is_dead = False

    @property
    def is_dead(self) -> bool:
        """Whether the process was killed."""
        return self._is_dead

    def arm(self, operations: int, fault: Fault) -> None:
        """Let the fault happen after this many further operations."""
        self._countdown, self._fault = operations, fault

    def disarm(self) -> None:
        """Let nothing happen."""
        self._countdown = None

    def perform(
        self, operation: str, path: StrPath, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        """Do the operation, or what the fault makes of it."""
        if self._is_dead and function is os.close:
            return function(*arguments)  # as the system does when a process ends
        if self._is_dead:
            raise Killed
        self.tried.append((operation, Path(path).name))
        is_due = self._countdown == 0
        if self._countdown is not None:
            self._countdown -= 1
        if is_due:
            self._break(function, arguments)
        result = super().perform(operation, path, function, *arguments, **options)
        self._note(operation, path, arguments)
        if is_due:
            self._is_dead = True
            raise Killed
        return result

    def _break(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Raise, unless the process dies only after the operation."""
        if self._fault == "killed after":
            return
        if function is os.close:
            function(*arguments)  # the system closes a file also where it reports an error
        if function is os.write and self._fault in ("full", "killed"):
            descriptor, data = arguments
            os.write(descriptor, data[: len(data) // 2])
        if self._fault == "killed":
            self._is_dead = True
            raise Killed
        number = errno.ENOSPC if self._fault == "full" else errno.EIO
        raise OSError(number, os.strerror(number))

    def _note(self, operation: str, path: StrPath, arguments: tuple[Any, ...]) -> None:
        name = Path(path).name
        self.done.append((operation, name))
        if operation == "write" and name == LOG:
            self.log += bytes(arguments[1])
