"""The event log's write side: append, chain, sync.

A line is written by one unbuffered write, so a killed process loses nothing that it logged. Every event but `train`
is synced at once, and `train` when the last sync is a second old. After any failure the log is poisoned: nobody
knows what the device holds, so nothing more is written. The reading side is `log_reader`, re-exported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    StorageError,
    UsageError,
)
from ledger.records.events import Event, SessionStart, Train, decode_event, encode_event
from ledger.records.parts import LogPosition
from ledger.storage.chain import MAX_LINE_BYTES, chain_line, first_chain
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.damage import damage_error
from ledger.storage.files import open_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.forks import abandon_in_children
from ledger.storage.lock import claim_log
from ledger.storage.log_reader import FileIdentity, LogLine, LogReader, LogTail, read_log
from ledger.storage.quarantine import QuarantinedTail, list_quarantined, quarantine_tail

__all__ = [
    "EventLog",
    "LogLine",
    "LogReader",
    "LogTail",
    "QuarantinedTail",
    "list_quarantined",
    "quarantine_tail",
    "read_log",
]

SYNC_INTERVAL_SECONDS: Final = 1.0
"""A `train` event is synced when the last sync is this old."""

_APPEND_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
_SYSTEM_CLOCK: Final = SystemClock()


class EventLog:
    """A log open for appending. The caller holds the run's lock; `create` and `open_for_append` make it.

    `head` is the position of the last line, `None` while there is none; `size` is the file's length in bytes.
    """

    def __init__(
        self,
        descriptor: int,
        path: StrPath,
        *,
        run_id: str,
        head: LogPosition | None,
        size: int,
        clock: Clock,
        fs: FileSystem,
    ) -> None:
        self.run_id = run_id
        self.head = head
        self.size = size
        self._path = Path(path)
        self._fs = fs
        self._clock = clock
        self._chain = first_chain(run_id) if head is None else head.chain
        self._descriptor: int | None = descriptor
        self._folder: int | None = None
        self._failure: str | None = None
        self._synced_size = size
        self._synced_at = clock.monotonic()
        status = fs.fstat(descriptor, path=path)
        self._identity = FileIdentity(status.st_dev, status.st_ino)
        self._folder = fs.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        abandon_in_children(self)

    @classmethod
    def create(cls, path: StrPath, run_id: str, *, clock: Clock = _SYSTEM_CLOCK, fs: FileSystem = OS) -> Self:
        """Create an empty log, durably, and open it.

        Raises:
            StorageError: it exists already, or the system refused.
        """
        descriptor = fs.open(path, _APPEND_FLAGS | os.O_CREAT | os.O_EXCL)
        try:
            claim_log(descriptor, path=path, fs=fs)
            fs.sync(descriptor, path=path)
            fs.sync_directory(Path(path).parent)
            return cls(descriptor, path, run_id=run_id, head=None, size=0, clock=clock, fs=fs)
        except BaseException:
            with suppress(StorageError):  # the first error is the one to report
                fs.close(descriptor, path=path)
            raise

    @classmethod
    def open_for_append(
        cls,
        path: StrPath,
        run_id: str | None = None,
        *,
        visit: Callable[[LogLine], None] | None = None,
        clock: Clock = _SYSTEM_CLOCK,
        fs: FileSystem = OS,
    ) -> Self:
        """Verify an existing log to its end and open it. `visit` is called with every line on the way.

        An empty log needs `run_id`; any other states it in its first line, where it must agree.

        Raises:
            EvidenceMissingError: there is no log, or it ends with a torn tail, which must be quarantined first.
            VerificationError: it is damaged; nothing is appended to a damaged log.
            NewerVersionError: a newer version of the ledger wrote to it.
            UnsafeError: something that is no regular file stands in its place.
            LockedError: another writer has it open.
            StorageError: the system refused.
        """
        descriptor = open_regular_file(path, flags=_APPEND_FLAGS, fs=fs)
        try:
            claim_log(descriptor, path=path, fs=fs)
            with read_log(path, run_id=run_id, fs=fs) as reader:
                found_id, head = _verify(reader, path, run_id=run_id, visit=visit)
            return cls(descriptor, path, run_id=found_id, head=head, size=reader.size, clock=clock, fs=fs)
        except BaseException:
            with suppress(StorageError):  # the first error is the one to report
                fs.close(descriptor, path=path)
            raise

    def locate_folder(self) -> Path:
        """Return where the log's folder lies now, also after it was moved.

        Raises:
            StorageError: it was deleted, or the system does not tell where it is.
        """
        if self._folder is None:
            raise UsageError("the log is closed", path=self._path)
        return Path(self._fs.locate(self._folder, path=self._path.parent))

    def append(self, event: Event) -> LogPosition:
        """Write one event and return its position; synced unless it is a `train` event soon after the last sync.

        Raises:
            UsageError: the event does not follow the head, or the log is closed.
            InvalidDocumentError: it would not read back as what it is; nothing was written.
            StorageError: the system refused, or the file is no longer the one that was opened; the log is poisoned.
        """
        self._require_usable()
        body = self._encode(event)
        line, chain = chain_line(self._chain, body)
        if len(line) > MAX_LINE_BYTES:
            raise InvalidDocumentError(
                f"a {type(event).__name__} event takes {len(line):,} bytes",
                path=self._path,
                expected=f"at most {MAX_LINE_BYTES:,} bytes a line",
                advice="log less at once, or more often",
            )
        self._write(line, LogPosition(event.seq, chain))
        if not isinstance(event, Train) or self._clock.monotonic() - self._synced_at >= SYNC_INTERVAL_SECONDS:
            self.sync()
        return LogPosition(event.seq, chain)

    def sync(self) -> None:
        """Force everything appended onto the device.

        Raises:
            StorageError: the system refused; the log is poisoned.
        """
        descriptor = self._require_usable()
        if self._synced_size == self.size:
            return
        try:
            self._fs.sync_data(descriptor, path=self._path)
        except BaseException as error:
            self._poison(error)
            raise
        self._synced_size = self.size
        self._synced_at = self._clock.monotonic()

    def close(self) -> None:
        """Sync and close; a poisoned log is only closed. Nothing happens if that was done.

        Raises:
            StorageError: the system refused; the file is closed nevertheless.
        """
        if self._descriptor is None:
            return
        try:
            if self._failure is None:
                self.sync()
        finally:
            self._close_descriptors()

    def abandon(self) -> None:
        """Let go of the file in a forked child, without writing anything."""
        self._failure = self._failure or "this process was forked from the one that opened it"
        for descriptor in self._take_descriptors():
            with suppress(OSError):
                os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _encode(self, event: Event) -> bytes:
        """Encode an event that follows the head and make sure that it reads back as what it is."""
        expected_seq = 0 if self.head is None else self.head.seq + 1
        if event.seq != expected_seq:
            raise UsageError(f"the event's seq is {event.seq}", path=self._path, expected=str(expected_seq))
        if self.head is None and not (isinstance(event, SessionStart) and event.run_id == self.run_id):
            raise UsageError(
                "a log begins with a session_start of its run", path=self._path, expected=self.run_id
            )
        reason = "it holds a value that its field cannot hold"
        try:
            body = encode_event(event)
            if decode_event(body) == event:
                return body
        except (TypeError, ValueError, RecursionError) as error:
            reason = str(error)
        raise InvalidDocumentError(
            f"this {type(event).__name__} event would not read back as it is: {reason}",
            path=self._path,
            advice="give numbers as Python's own, with floats in float fields, and name non-finite ones",
        )

    def _write(self, line: bytes, position: LogPosition) -> None:
        descriptor = self._require_usable()
        try:
            self._require_same_file()
            self._fs.write(descriptor, line, path=self._path)
            self.size += len(line)
            self._chain, self.head = position.chain, position
        except BaseException as error:
            self._poison(error)
            raise

    def _require_usable(self) -> int:
        if self._failure is not None:
            raise StorageError(
                f"an earlier failure ended this log's writing ({self._failure})",
                path=self._path,
                advice="solve its cause, then start again: the log is continued from what the device holds",
            )
        if self._descriptor is None:
            raise UsageError("the log is closed", path=self._path)
        return self._descriptor

    def _require_same_file(self) -> None:
        """Make sure that the log's name still means the opened file, at the length that this writer left."""
        status = self._fs.look(self._path, directory=self._folder)
        if status is None:
            self.locate_folder()
            raise StorageError(
                "the log was removed or renamed while it was being written",
                path=os.path.abspath(self._path),  # noqa: PTH100 - where it was when it was opened
                advice="put it back from where it was moved to, or from a copy, then resume",
            )
        if FileIdentity(status.st_dev, status.st_ino) != self._identity:
            raise StorageError(
                "this is no longer the file that was opened",
                path=self._path,
                advice="something replaced it (an editor, a copy): restore the original, then start again",
            )
        if status.st_size != self.size:
            raise StorageError(
                f"the file holds {status.st_size:,} bytes",
                path=self._path,
                expected=f"{self.size:,} bytes, as this writer left it",
                advice="something else wrote to it or cut it: find out what, then start again",
            )

    def _poison(self, error: BaseException) -> None:
        self._failure = str(error) or type(error).__name__

    def _close_descriptors(self) -> None:
        with ExitStack() as stack:
            for descriptor in self._take_descriptors():
                stack.enter_context(self._fs.closing(descriptor, path=self._path))

    def _take_descriptors(self) -> list[int]:
        taken = [number for number in (self._descriptor, self._folder) if number is not None]
        self._descriptor = self._folder = None
        return taken


def _verify(
    reader: LogReader, path: StrPath, *, run_id: str | None, visit: Callable[[LogLine], None] | None
) -> tuple[str, LogPosition | None]:
    """Read a log to its end; return the run id and the position of the last line."""
    found_id, head = run_id, None
    for line in reader:
        if line.problem is not None or line.event is None or line.event.seq != line.number - 1:
            raise damage_error(line, path)
        if isinstance(line.event, SessionStart):
            found_id = line.event.run_id
        elif head is None:
            raise damage_error(line, path)
        head = LogPosition(line.event.seq, line.chain)
        if visit is not None:
            visit(line)
    if reader.tail is not None:
        raise EvidenceMissingError(
            f"the log ends with {reader.tail.bytes:,} bytes that were never committed",
            path=path,
            place=f"byte {reader.tail.offset:,}",
            advice="a crash left them; they are moved to quarantine when the run is resumed or repaired",
        )
    if found_id is None:
        raise EvidenceMissingError("the log is empty, so it does not say which run it belongs to", path=path)
    return found_id, head
