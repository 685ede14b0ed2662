"""Reading the event log: streaming, in bounded memory, with the exact place of everything.

Damage never raises: a line that is not what it should be is yielded with its `form_problem`, or with a `chain` that
is not the `expected_chain`, and reading goes on behind it. What stands after the last newline is no line but the
torn tail. What the events mean, and whether a finding is an error, is the audit's to say.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec

from ledger.errors import StorageError
from ledger.records.events import AnyEvent, SessionStart, UnknownEvent, decode_event
from ledger.records.parts import LogPosition
from ledger.storage.chain import MAX_LINE_BYTES, first_chain, next_chain, split_line
from ledger.storage.files import open_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.line_problems import describe_line, describe_tail, describe_too_long, newer_version

__all__ = ["FileIdentity", "LogLine", "LogReader", "LogTail", "read_log"]

_BLOCK_BYTES: Final = 1 << 20
_EXCERPT_BYTES: Final = 256
_NO_BEGINNING: Final = "the log does not begin with a session_start: its head was cut off or changed"


class FileIdentity(NamedTuple):
    """Which file this is, whatever its name becomes."""

    device: int
    inode: int


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line of the log, as found.

    `number` counts from 1; `offset` and `length` are in bytes, the newline included. `body` is the event's encoding
    without its chain; of a line whose end is damaged, or that is too long, the beginning of what stands there.
    `chain` is what the line claims, empty if it claims nothing; `expected_chain` is what follows from this line and
    the one before, empty if the line before claims nothing. Exactly one of `event` and `form_problem` is given.
    """

    number: int
    offset: int
    length: int
    body: bytes
    chain: str
    expected_chain: str
    event: AnyEvent | UnknownEvent | None
    form_problem: str | None
    newer_version: int | None = None

    @property
    def has_broken_chain(self) -> bool:
        """Whether the line's digest does not follow from the line before; false where it cannot be told."""
        return bool(self.chain and self.expected_chain) and self.chain != self.expected_chain

    @property
    def problem(self) -> str | None:
        """What is wrong with the line itself, in words, or `None`."""
        if self.form_problem is not None:
            return self.form_problem
        if self.has_broken_chain:
            return f"its chain digest is {self.chain}, but {self.expected_chain} follows from the line before"
        return None

    @property
    def position(self) -> LogPosition | None:
        """The line's `seq` and chain digest, or `None` where it holds no event."""
        return None if self.event is None else LogPosition(self.event.seq, self.chain)


class LogTail(NamedTuple):
    """What stands after the last newline: bytes that were never committed.

    `problem` is set where they cannot stem from a write that was cut short, and then nothing may be truncated.
    """

    offset: int
    bytes: int
    sha256: str
    problem: str | None


def read_log(
    path: StrPath, *, run_id: str | None = None, after: LogLine | None = None, fs: FileSystem = OS
) -> LogReader:
    """Open the log for reading, as far as it reaches at this moment.

    The chain starts from `run_id`, by default from the one in the first line. With `after`, a line that was read
    before, reading goes on behind it; the log must not be shorter than that.

    Raises:
        EvidenceMissingError: there is no log.
        UnsafeError: something that is no regular file stands in its place.
        StorageError: the system refused.
    """
    return LogReader(path, run_id=run_id, after=after, fs=fs)


class LogReader:
    """The lines of a log, once from first to last. It closes its file at the end, or with `close()` or `with`.

    `size` is the file's size when it was opened: what a live writer adds later is not read. `links` is the number of
    names that the file has, `identity` which file it is. `tail` is known when all lines were read; `None` means that
    the log ends with a newline, as it should.
    """

    def __init__(
        self, path: StrPath, *, run_id: str | None = None, after: LogLine | None = None, fs: FileSystem = OS
    ) -> None:
        self._fs = fs
        self._path = path
        self._descriptor: int | None = open_regular_file(path, fs=fs)
        status = fs.fstat(self._descriptor, path=path)
        self.size = status.st_size
        self.links = status.st_nlink
        self.identity = FileIdentity(status.st_dev, status.st_ino)
        self.tail: LogTail | None = None
        self._after = after
        self._lines: Generator[LogLine] = self._read_lines(run_id)

    def __iter__(self) -> Iterator[LogLine]:
        """Return the generator behind this reader, so that a loop over a long log saves a call per line."""
        return self._lines

    def __next__(self) -> LogLine:
        return next(self._lines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; nothing happens if that was done."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._fs.close(descriptor, path=self._path)

    def _read_lines(self, run_id: str | None) -> Generator[LogLine]:
        number, offset = 0, self._start
        previous = "" if run_id is None else first_chain(run_id)
        if self._after is not None:
            number, previous = self._after.number, self._after.chain
        with self:
            for line in itertools.chain.from_iterable(self._read_split()):
                number += 1
                if number == 1 and run_id is None:
                    found = _interpret_first(line)
                else:
                    found = _interpret(line, number=number, offset=offset, previous=previous)
                yield found
                previous = found.chain
                offset += found.length

    def _read_split(self) -> Iterator[Sequence[bytes | _LongLine]]:
        """Yield the whole lines of each block without their newlines; at the end, note the tail."""
        carried, skipped, digest = b"", 0, hashlib.sha256()
        for block in self._read_blocks():
            rest = block
            if skipped:  # inside a line that is too long already
                end = block.find(b"\n")
                if end < 0:
                    skipped += len(block)
                    digest.update(block)
                    continue
                yield [_LongLine(carried, skipped + end)]
                carried, skipped, rest = b"", 0, block[end + 1 :]
            *lines, carried = (carried + rest).split(b"\n")
            yield lines
            if len(carried) >= MAX_LINE_BYTES:
                skipped, digest = len(carried), hashlib.sha256(carried)
                carried = carried[:_EXCERPT_BYTES]
        if not skipped:
            skipped, digest = len(carried), hashlib.sha256(carried)
        if skipped:
            offset = self.size - skipped
            self.tail = LogTail(offset, skipped, digest.hexdigest(), describe_tail(carried, offset=offset))

    @property
    def _start(self) -> int:
        """The byte at which reading starts."""
        return 0 if self._after is None else self._after.offset + self._after.length

    def _read_block(self, descriptor: int, count: int, *, offset: int) -> bytes:
        if self._after is None:
            return self._fs.read(descriptor, count, path=self._path)
        return self._fs.pread(descriptor, count, offset, path=self._path)

    def _read_blocks(self) -> Iterator[bytes]:
        remaining = max(0, self.size - self._start)
        while remaining:
            if self._descriptor is None:
                raise ValueError("the log was closed before it was read to its end")
            block = self._read_block(
                self._descriptor, min(_BLOCK_BYTES, remaining), offset=self.size - remaining
            )
            if not block:
                raise StorageError(
                    "the log became shorter while it was read",
                    path=self._path,
                    expected=f"{self.size:,} bytes",
                    advice="something replaced or cut it: find out what, then read it again",
                )
            remaining -= len(block)
            yield block


class _LongLine(NamedTuple):
    """A line beyond the bound, of which only the beginning is kept."""

    beginning: bytes
    length: int


def _interpret(line: bytes | _LongLine, *, number: int, offset: int, previous: str) -> LogLine:
    """Split, chain and decode one line (without its newline)."""
    if isinstance(line, _LongLine) or len(line) >= MAX_LINE_BYTES:
        return _long_line(line, number=number, offset=offset)
    parts = split_line(line)
    if parts is None:
        problem = describe_line(line, number=number, error=None)
        return LogLine(number, offset, len(line) + 1, line[:_EXCERPT_BYTES], "", "", None, problem)
    body, chain = parts
    expected = next_chain(previous, body) if previous else ""
    try:
        event = decode_event(body)
    except (ValueError, RecursionError) as error:
        problem = describe_line(line, number=number, error=error)
        return LogLine(
            number,
            offset,
            len(line) + 1,
            body,
            chain,
            expected,
            None,
            problem,
            newer_version=newer_version(line),
        )
    return LogLine(number, offset, len(line) + 1, body, chain, expected, event, None)


def _long_line(line: bytes | _LongLine, *, number: int, offset: int) -> LogLine:
    beginning, length = line if isinstance(line, _LongLine) else (line, len(line))
    problem = describe_too_long(length + 1)
    return LogLine(number, offset, length + 1, bytes(beginning[:_EXCERPT_BYTES]), "", "", None, problem)


def _interpret_first(line: bytes | _LongLine) -> LogLine:
    """Interpret the first line, whose chain starts from the run id that it states itself."""
    found = _interpret(line, number=1, offset=0, previous="")
    if isinstance(found.event, SessionStart):
        expected = next_chain(first_chain(found.event.run_id), found.body)
        return msgspec.structs.replace(found, expected_chain=expected)
    if found.event is not None:
        return msgspec.structs.replace(found, event=None, form_problem=_NO_BEGINNING)
    return found
