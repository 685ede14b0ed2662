"""One pass over the log that feeds every checker.

A checker overrides the hooks it needs and is asked for nothing else while the log goes by. What all of them need
(the session's track, the event before, the line at hand) stands in the `Stream`. Where a line could not be read or
lines are missing there is no event before: comparisons then start anew instead of blaming what follows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from ledger.audit.files import RunFiles
from ledger.audit.findings import Findings
from ledger.audit.track import Track
from ledger.history import History
from ledger.records.events import (
    EVENT_KINDS,
    AnyEvent,
    Checkpoint,
    Overflow,
    SessionEnd,
    SessionStart,
    Train,
    UnknownEvent,
    Validation,
)
from ledger.records.layout import LOG
from ledger.records.parts import LogPosition
from ledger.storage.log_reader import LogLine, LogTail, read_log

__all__ = ["Checker", "Feed", "Stream", "read_through"]


KEPT_POSITIONS: Final = 256
"""How many train events may lie between a checkpoint's capture and its event, with room to spare."""


Standing = SessionStart | Train
"""An event that tells where the data stood."""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """A checkpoint event, and where the data stood at the moment it captured."""

    event: Checkpoint
    where: str
    standing: Standing | None
    """None where the log does not say."""


@dataclass(kw_only=True)
class Stream:
    """Where the pass stands, and what it has gathered."""

    files: RunFiles
    findings: Findings
    history: History = field(default_factory=History)
    tracks: dict[int, Track] = field(default_factory=dict)
    """Session number to its track."""
    track: Track | None = None
    """The session at hand; None outside any."""
    previous: AnyEvent | UnknownEvent | None = None
    """The event before, in the same session; None at its start and behind a damaged place."""
    line: LogLine | None = None
    positions: deque[Standing] = field(default_factory=lambda: deque(maxlen=KEPT_POSITIONS))
    """Where the data stood at the latest train events and session starts."""
    captured: dict[tuple[str, str], Captured] = field(default_factory=dict)
    """Checkpoint path and manifest digest to the event that vouches for it."""
    pinned: set[str] = field(default_factory=set)
    """Documents whose position on the log was found there, by their path."""
    last: LogLine | None = None
    """The last line that holds an event."""
    followed: LogLine | None = None
    """The last line whose event the checkers have seen."""
    lines: int = 0
    tail: LogTail | None = None
    has_log: bool = True
    keeps_rows: bool = True
    """Whether tracks remember every train event; without, a long log needs no memory for them."""
    is_live: bool = False
    """Whether another process holds the run's lock: the log may grow while it is read."""
    progress: Callable[[int], object] | None = None
    """Told, from several threads, of the bytes that are hashed."""
    newer: tuple[int, int] | None = None
    """Line number and version of the first session that a newer version of the ledger wrote."""

    @property
    def head(self) -> LogPosition | None:
        """The position of the last line that holds an event."""
        return None if self.last is None else self.last.position

    @property
    def where(self) -> str:
        """The line at hand, for a finding."""
        return "" if self.line is None else place(self.line)

    @property
    def optimizer_groups(self) -> set[str]:
        """The groups of the optimizer, as the log or else run.json states them; empty where neither does."""
        known = self.history.facts or self.files.run.document
        return set() if known is None else {group.name for group in known.optimizer}

    def standing_at(self, event: Checkpoint) -> Standing | None:
        """Return where the data stood when a checkpoint captured it; None if that is longer ago than is remembered."""
        for standing in reversed(self.positions):
            if standing.session != event.session:
                return None
            if standing.seq <= event.at.seq:
                return standing
        return None

    def track_of(self, session: int) -> Track | None:
        """Return the track of a session by its number."""
        return self.tracks.get(session)


def place(line: LogLine) -> str:
    """Say where a line stands: number, seq, byte offset."""
    seq = "" if line.event is None else f" (seq {line.event.seq})"
    return f"{LOG} line {line.number}{seq}, byte {line.offset}"


class Checker:
    """Base of the checkers of one group of rules."""

    rules: ClassVar[tuple[str, ...]] = ()
    """The rules that this checker decides."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.findings = stream.findings

    def on_line(self, line: LogLine) -> None:
        """Look at a line before anything else does, whether or not it holds an event."""

    def on_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Look at an event of any kind, after the hook of its kind."""

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Look at an event of any kind but `train`, which nearly all are, after the hook of its kind."""

    def on_session_start(self, event: SessionStart) -> None:
        """Look at the start of a session; the stream's track is already its own."""

    def on_train(self, event: Train) -> None:
        """Look at a train event."""

    def on_overflow(self, event: Overflow) -> None:
        """Look at a skipped attempt."""

    def on_val(self, event: Validation) -> None:
        """Look at an evaluation."""

    def on_checkpoint(self, event: Checkpoint) -> None:
        """Look at a checkpoint event."""

    def on_session_end(self, event: SessionEnd) -> None:
        """Look at the end of a session."""

    def finish(self) -> None:
        """Conclude, with the whole history at hand."""


_ON_RARE_EVENT: Final = ("on_rare_event", "on_event")

_HOOKS: Final[dict[type, str]] = {
    SessionStart: "on_session_start",
    Train: "on_train",
    Overflow: "on_overflow",
    Validation: "on_val",
    Checkpoint: "on_checkpoint",
    SessionEnd: "on_session_end",
}


class Feed:
    """Hands lines to checkers, one after the other."""

    def __init__(self, stream: Stream, checkers: Sequence[Checker]) -> None:
        self._stream = stream
        self._on_line = _hooks(checkers, "on_line")
        self._on_event = {
            kind: [
                *_hooks(checkers, *([_HOOKS[kind]] if kind in _HOOKS else [])),
                *_hooks(checkers, *(["on_event"] if kind is Train else _ON_RARE_EVENT)),
            ]
            for kind in (*EVENT_KINDS.values(), UnknownEvent)
        }
        """Kind of event to what looks at it, in order."""

    def take(self, line: LogLine) -> None:
        """Feed the next line of the log."""
        stream = self._stream
        stream.line = line
        stream.lines = line.number
        for look in self._on_line:
            look(line)
        if _advance(stream, line):
            event = line.event
            for hook in self._on_event[type(event)]:
                hook(event)
            stream.previous, stream.followed = event, line
            _remember(stream, line)


def read_through(stream: Stream, checkers: Sequence[Checker]) -> None:
    """Read the whole log once, feeding the checkers. The log must exist.

    Raises:
        UnsafeError: something that is no regular file stands in the log's place.
        StorageError: the system refused to read.
    """
    feed = Feed(stream, checkers)
    with read_log(Path(stream.files.run_dir) / LOG) as reader:
        for line in reader:
            feed.take(line)
        stream.tail = reader.tail
    stream.line = None


def _hooks(checkers: Sequence[Checker], *names: str) -> list[Callable[[Any], None]]:
    """Return the hooks of these names that checkers override, checker by checker."""
    return [
        getattr(checker, name)
        for checker in checkers
        for name in names
        if getattr(type(checker), name) is not getattr(Checker, name)
    ]


def _advance(stream: Stream, line: LogLine) -> bool:
    """Move on to a line's event; returns whether it is one of a known session and can be followed."""
    event = line.event
    if event is None:
        if line.newer_version is not None and stream.newer is None:
            stream.newer = (line.number, line.newer_version)
        _interrupt(stream)
        return False
    before = None if stream.last is None else stream.last.event
    if before is not None and event.seq != before.seq + 1:
        _interrupt(stream)
    stream.last = line
    if isinstance(event, SessionStart):
        _open(stream, event, line)
    elif stream.track is None or stream.track.number != event.session:
        stream.track, stream.previous = None, None
        return False
    stream.history.add(event, chain=line.chain)
    return True


def _interrupt(stream: Stream) -> None:
    stream.previous = None
    if stream.track is not None:
        stream.track.is_damaged = True


def _open(stream: Stream, event: SessionStart, line: LogLine) -> None:
    track = Track(
        start=event,
        sections=stream.files.sections(event.recipe_sha256),
        config=stream.files.config(event.recipe_sha256),
        offset=line.offset,
        length=line.length,
    )
    stream.track, stream.previous = track, None
    stream.tracks.setdefault(event.session, track)


def _remember(stream: Stream, line: LogLine) -> None:
    track = stream.track
    if track is None:
        return
    match line.event:
        case Train() as event:
            stream.positions.append(event)
            if stream.keeps_rows:
                track.add_train(event, offset=line.offset, length=line.length)
        case SessionStart() as event:
            stream.positions.append(event)
        case Checkpoint() as event:
            stream.captured[event.path, event.manifest_sha256] = Captured(
                event=event, where=stream.where, standing=stream.standing_at(event)
            )
        case Overflow() as event:
            track.add_skip(event)
        case SessionEnd() as event:
            track.end = event
