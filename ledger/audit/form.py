"""LG1: the form of the log, and what pins it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import ClassVar, Final

from ledger.audit.heads import QUOTED, QuotedHead
from ledger.audit.stream import Checker, Stream, place
from ledger.records.events import AnyEvent, SessionEnd, SessionStart, Train, UnknownEvent
from ledger.records.layout import LOG, MANIFEST, RUN, SEAL
from ledger.records.parts import LogPosition
from ledger.storage.log_reader import LogLine

__all__ = ["FormChecker", "PinChecker"]

CLOCK_JUMP_SECONDS: Final = 60.0
"""By how much wall clock and monotonic clock may drift apart between two events before it is a hint."""

_MINUTES: Final = len("2026-01-01T00:00")
"""Times that agree so far are less than a minute apart, and need not be parsed."""


class FormChecker(Checker):
    """Lines, chain, order and clocks."""

    rules: ClassVar[tuple[str, ...]] = ("LG101", "LG102", "LG103", "LG104", "LG106", "LG107")

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._next_seq = 0
        self._session = 0
        self._has_ended = False
        self._ids: dict[str, int] = {}
        """Session id to the first session that bears it."""

    def on_line(self, line: LogLine) -> None:
        """Check a line's form, its chain and its place in the order."""
        if line.chain != line.expected_chain and line.has_broken_chain:
            self.findings.add(
                "LG102",
                "this line's chain digest does not follow from it and the line before: one of the two was changed",
                where=place(line),
                evidence={"stated": line.chain, "computed": line.expected_chain},
            )
        event = line.event
        if event is None:
            if line.newer_version is None:
                self.findings.add("LG101", line.form_problem or "this line holds no event", where=place(line))
            self._next_seq += 1
            return
        if isinstance(event, UnknownEvent):
            self.findings.add(
                "LG101",
                f"an event of unknown kind {event.event!r}: it is kept, but nobody can say what it changes",
                where=place(line),
                severity="missing",
            )
        if event.seq != self._next_seq:
            self.findings.add(
                "LG103",
                f"seq is {event.seq}, expected {self._next_seq}: lines are missing, repeated or in another order",
                where=place(line),
                evidence={"found": event.seq, "expected": self._next_seq},
            )
        self._next_seq = event.seq + 1
        goes_on = isinstance(event, Train) and event.session == self._session and not self._has_ended
        if not goes_on:
            self._check_session(event, line)
        self._check_clocks(event, line)

    def _check_session(self, event: AnyEvent | UnknownEvent, line: LogLine) -> None:
        is_start = isinstance(event, SessionStart)
        problems = []
        if event.session == self._session:
            if is_start:
                problems.append(("LG106", f"session {event.session} has a second session_start"))
            elif self._has_ended:
                problems.append(("LG106", f"session {event.session} goes on after its session_end"))
        else:
            if event.session != self._session + 1:
                problems.append(("LG103", f"session {event.session} follows session {self._session}"))
            if not is_start:
                problems.append(("LG106", f"session {event.session} does not begin with a session_start"))
            self._session, self._has_ended = event.session, False
        if isinstance(event, SessionStart):
            first = self._ids.setdefault(event.session_id, event.session)
            if first != event.session:
                problems.append(("LG103", f"session {event.session} bears the id of session {first}"))
        run_id = self.stream.history.run_id
        if isinstance(event, SessionStart) and run_id is not None and event.run_id != run_id:
            problems.append(
                ("LG103", f"session {event.session} is of run {event.run_id}, the log of {run_id}")
            )
        self._has_ended = self._has_ended or isinstance(event, SessionEnd)
        for rule, problem in problems:
            self.findings.add(rule, problem, where=place(line))

    def _check_clocks(self, event: AnyEvent | UnknownEvent, line: LogLine) -> None:
        before = self.stream.previous
        if before is None or before.session != event.session:
            return
        elapsed = event.elapsed - before.elapsed
        if elapsed < 0:
            self.findings.add(
                "LG107",
                f"elapsed falls from {before.elapsed} s to {event.elapsed} s within the session",
                where=place(line),
            )
        elif event.time[:_MINUTES] != before.time[:_MINUTES] or elapsed > CLOCK_JUMP_SECONDS:
            wall = _seconds_between(before.time, event.time)
            if wall is not None and abs(wall - elapsed) > CLOCK_JUMP_SECONDS:
                self.findings.add(
                    "LG107",
                    f"the wall clock moved by {wall:.0f} s while {elapsed:.0f} s passed: it was set, or the "
                    "machine slept",
                    where=place(line),
                    severity="hint",
                )

    def finish(self) -> None:
        """Report what stands behind the last newline, or that there is nothing at all."""
        tail = self.stream.tail
        if tail is not None and tail.problem is not None:
            self.findings.add("LG101", tail.problem, where=f"{LOG} byte {tail.offset}")
        elif tail is not None and not self.stream.is_live:
            self.findings.add(
                "LG104",
                f"{tail.bytes} bytes after the last newline were never committed: the next session moves "
                "them to quarantine/ and goes on after them",
                where=f"{LOG} byte {tail.offset}",
                evidence={"bytes": tail.bytes, "sha256": tail.sha256},
            )
        elif not self.stream.lines and not self.stream.is_live:
            state = "is empty" if self.stream.has_log else "is absent"
            self.findings.add("LG104", f"the log {state}: nothing is on record", where=LOG)


def _seconds_between(before: str, after: str) -> float | None:
    try:
        return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()
    except ValueError:  # the pattern of times admits 30 February
        return None


class PinChecker(Checker):
    """LG105: what run.json, the checkpoints, the seal and a quoted head pin lies on the chain."""

    rules: ClassVar[tuple[str, ...]] = ("LG105",)

    def __init__(self, stream: Stream, *, quoted: QuotedHead | None = None) -> None:
        super().__init__(stream)
        self._quoted = quoted
        self._pins: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
        for who, pin in self._collect():
            self._pins[pin.seq].append((who, pin.chain))

    def _collect(self) -> Iterator[tuple[str, LogPosition]]:
        files = self.stream.files
        run = files.run.document
        for session in run.sessions if run else ():
            yield f"{RUN}, session {session.session}", session.log
        for path, checkpoint in files.complete_checkpoints.items():
            if (manifest := checkpoint.manifest.document) is not None:
                yield f"{path}/manifest.json", manifest.log
        if files.seal.document is not None:
            yield SEAL, files.seal.document.log
        if self._quoted is not None:
            yield QUOTED, self._quoted.log

    def on_line(self, line: LogLine) -> None:
        """Compare a line with what is pinned at its seq."""
        if line.event is None or line.event.seq not in self._pins:
            return
        seq = line.event.seq
        for who, chain in self._pins.pop(seq):
            if chain == line.chain:
                self.stream.pinned.add(who)
            else:
                self.findings.add(
                    "LG105",
                    f"the log has another line at seq {seq} than the one pinned: {self._cause(who, line.event)}",
                    where=who,
                    evidence={"pinned": chain, "on the log": line.chain},
                )

    def _cause(self, who: str, event: AnyEvent | UnknownEvent) -> str:
        """Say why something may pin another line than the one of this event."""
        files, of_log = self.stream.files, self.stream.history.run_id
        if of_log is None and isinstance(event, SessionStart):
            of_log = event.run_id  # the history takes it up after this
        path = who.partition(",")[0]
        folder = files.complete_checkpoints.get(path.removesuffix(f"/{MANIFEST}"))
        document = files.run.document if folder is None else folder.manifest.document
        if path == RUN or folder is not None:
            of_run = None if document is None else document.run_id
            if of_run != of_log:
                return f"{path} is of run {of_run}, the log of {of_log}: files of two runs were mixed"
        return f"the log was rewritten, or {path} stems from a copy of the run that went on otherwise"

    def finish(self) -> None:
        """Report pins beyond the log's end, and a quoted head of another run."""
        run_id = self.stream.history.run_id
        if self._quoted is not None and self._quoted.run_id not in (None, run_id):
            self.findings.add("LG105", f"is of run {self._quoted.run_id}, and this is {run_id}", where=QUOTED)
        head = self.stream.head
        last = -1 if head is None else head.seq
        for seq in sorted(self._pins):
            for who, chain in self._pins[seq]:
                lost = (
                    f"the log ends at seq {last}: {seq - last} lines or more are lost"
                    if seq > last
                    else "that line cannot be read"
                )
                self.findings.add(
                    "LG105",
                    f"pins seq {seq}, but {lost}",
                    where=who,
                    evidence={"pinned": chain, "seq": seq, "log ends at": last},
                )
