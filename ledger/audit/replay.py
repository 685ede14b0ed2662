"""LG201 to LG206: the counters, replayed line by line.

Everything is compared with the line before, so that one wrong number is found once, where it stands.
"""

from __future__ import annotations

from typing import ClassVar, Final

from ledger.audit.causes import cause_of_count
from ledger.audit.lineage import resolve_parent, starts_from_beginning
from ledger.audit.stream import Checker, Stream, place
from ledger.audit.track import Track
from ledger.records.events import (
    AnyEvent,
    Checkpoint,
    Overflow,
    SessionEnd,
    SessionStart,
    Train,
    UnknownEvent,
)
from ledger.records.fields import is_finite
from ledger.records.parts import COUNTER_NAMES, Counters

__all__ = ["CounterChecker", "SkipChecker", "WindowChecker", "describe"]

WINDOW_NAMES: Final = {name: name for name in COUNTER_NAMES} | {"step": "updates", "tokens_seen": "tokens"}
"""Each total to what a window calls the part of it that it holds."""


def describe(counters: Counters) -> str:
    """Return the six totals on one line."""
    return ", ".join(f"{name} {getattr(counters, name)}" for name in COUNTER_NAMES)


class CounterChecker(Checker):
    """LG201, LG203, LG206: what holds on each line and between neighbours."""

    rules: ClassVar[tuple[str, ...]] = ("LG201", "LG203", "LG206")

    def on_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Compare a line with the line before."""
        if event.attempts != event.step + event.skipped:
            self.findings.add(
                "LG201",
                f"attempts is {event.attempts}, but step {event.step} + skipped {event.skipped} = "
                f"{event.step + event.skipped}",
                where=self.stream.where,
            )
        before, track = self.stream.previous, self.stream.track
        if before is None or track is None:
            return
        # Spelt out, because it runs on every line of the log.
        if (
            event.step < before.step
            or event.attempts < before.attempts
            or event.skipped < before.skipped
            or event.microbatches < before.microbatches
            or event.tokens_seen < before.tokens_seen
            or event.loss_tokens < before.loss_tokens
        ):
            self._report_falls(event, before)
        tokens = event.tokens_seen - before.tokens_seen
        microbatches = event.microbatches - before.microbatches
        if tokens != microbatches * track.start.tokens_per_microbatch:
            self._report_tokens(tokens, microbatches, size=track.start.tokens_per_microbatch)

    def _report_falls(self, event: AnyEvent | UnknownEvent, before: AnyEvent | UnknownEvent) -> None:
        for name in COUNTER_NAMES:
            if getattr(event, name) < getattr(before, name):
                self.findings.add(
                    "LG206",
                    f"{name} falls from {getattr(before, name)} to {getattr(event, name)} within session "
                    f"{event.session}",
                    where=self.stream.where,
                )

    def on_session_start(self, event: SessionStart) -> None:
        """A later session whose parent is unknown still starts from some checkpoint's counters or the run's."""
        stream = self.stream
        if (
            event.session == 1
            or starts_from_beginning(stream, event)
            or resolve_parent(stream, event) is not None
        ):
            return  # LG302 compares with the very one
        known = [captured.event.at.counters for captured in stream.captured.values()]
        known += [
            folder.manifest.document.counters
            for folder in stream.files.complete_checkpoints.values()
            if folder.manifest.document is not None
        ]
        if event.counters not in [*known, stream.history.starting_counters]:
            self.findings.add(
                "LG206",
                f"session {event.session} starts at {describe(event.counters)}, where no checkpoint of this "
                "run stood",
                where=stream.where,
            )

    def _report_tokens(self, tokens: int, microbatches: int, *, size: int) -> None:
        expected = microbatches * size
        self.findings.add(
            "LG203",
            f"tokens_seen moved by {tokens}, but {microbatches} microbatches of {size} tokens hold {expected}"
            f"{cause_of_count(tokens, expected)}",
            where=self.stream.where,
            evidence={"moved": tokens, "expected": expected},
        )


class WindowChecker(Checker):
    """LG202, LG204: windows against totals, and whole accumulation windows."""

    rules: ClassVar[tuple[str, ...]] = ("LG202", "LG204")

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._track: Track | None = None
        self._base: SessionStart | Train | None = None
        """The last train event or session start; None behind a damaged place."""
        self._interval: int | None = None
        """Updates between train events, as the session's own recipe says; None where it does not."""
        self._remainder: tuple[int, str] | None = None
        """The remainder at the train event just before and its place, until the session's end explains it."""

    def on_session_start(self, event: SessionStart) -> None:
        """Judge what the session before left open, and begin a new account."""
        self._close_unclean()
        self._track = self.stream.track
        self._base = event
        sections = None if self._track is None else self._track.sections
        logging = None if sections is None else sections.logging
        self._interval = None if logging is None else logging.interval

    def on_train(self, event: Train) -> None:
        """Compare the totals with the window."""
        if self._remainder is not None:
            self._refute_remainder()
        if len(event.batches) != event.window.microbatches:
            self.findings.add(
                "LG202",
                f"the window counts {event.window.microbatches} microbatches but lists {len(event.batches)} "
                "digests",
                where=self.stream.where,
            )
        if self.stream.previous is not None and self._base is not None:
            self._check_window(event, self._base)
        if event.window.updates > 1:
            self._check_interval(event)
        self._base = event
        self._check_whole(event.microbatches, event.attempts, at="a train event", may_be_closing=True)

    def _check_window(self, event: Train, base: SessionStart | Train) -> None:
        window = event.window
        # Spelt out, because it runs on nearly every line of the log.
        if (
            event.step == base.step + window.updates
            and event.attempts == base.attempts + window.attempts
            and event.skipped == base.skipped + window.skipped
            and event.microbatches == base.microbatches + window.microbatches
            and event.tokens_seen == base.tokens_seen + window.tokens
            and event.loss_tokens == base.loss_tokens + window.loss_tokens
        ):
            return
        for name, of_window in WINDOW_NAMES.items():
            total, moved = getattr(event, name) - getattr(base, name), getattr(window, of_window)
            if total != moved:
                self.findings.add(
                    "LG202",
                    f"{name} moved by {total} since the last train event or session start, but the window "
                    f"states {moved}",
                    where=self.stream.where,
                    evidence={"totals": total, "window": moved},
                )

    def _check_interval(self, event: Train) -> None:
        """A train event is due at every multiple of the logging interval: none lies inside a window."""
        updates, interval = event.window.updates, self._interval
        if interval is None:
            return
        due = (event.step - updates) // interval * interval + interval
        if due < event.step:
            self.findings.add(
                "LG202",
                f"the window holds {updates} updates up to step {event.step}, although a train event is due every "
                f"{interval}: that of step {due} is missing",
                where=self.stream.where,
                evidence={"updates": updates, "interval": interval, "due": due},
            )

    def on_overflow(self, event: Overflow) -> None:
        """A skipped attempt ends a whole accumulation window."""
        self._refute_remainder()
        self._check_whole(event.microbatches, event.attempts, at="an overflow event")

    def on_checkpoint(self, event: Checkpoint) -> None:
        """At the moment that a checkpoint captured, nothing was outstanding."""
        self._refute_remainder()
        track = self._track
        if track is None:
            return
        known = self._counters_at(track, event)
        if not track.is_damaged and known is not None and known != event.at.counters:
            self.findings.add(
                "LG202",
                f"{event.path} captured {describe(event.at.counters)}, but the windows up to seq "
                f"{event.at.seq} account for {describe(known)}",
                where=self.stream.where,
            )
        self._check_whole(
            event.at.microbatches, event.at.attempts, at="the moment that a checkpoint captured"
        )

    def _counters_at(self, track: Track, event: Checkpoint) -> Counters | None:
        """Return what the windows up to a checkpoint's capture account for; None where that is not remembered."""
        if self.stream.keeps_rows:
            return track.counters_at(event.at.seq)
        standing = self.stream.standing_at(event)
        if standing is None:
            self.findings.skip("LG202 checkpoints", f"{event.path} was captured too long before its event")
        return None if standing is None else standing.counters

    def on_session_end(self, event: SessionEnd) -> None:
        """At a session's end nothing is outstanding; only an interruption leaves a remainder."""
        if event.status in {"interrupted", "failed"}:
            self._remainder = None
        self._refute_remainder()
        if (
            self.stream.previous is not None
            and self._base is not None
            and event.counters != self._base.counters
        ):
            self.findings.add(
                "LG202",
                f"the session ended at {describe(event.counters)}, but its windows account for "
                f"{describe(self._base.counters)}",
                where=self.stream.where,
            )

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Follow the totals; behind a damaged place the next train event is the new base."""
        if not isinstance(event, UnknownEvent):
            self._refute_remainder()  # a session's end has explained it by now
        if self.stream.previous is None and not isinstance(event, SessionStart):
            self._base = None

    def finish(self) -> None:
        """Judge what the last session left open."""
        self._close_unclean()

    def _close_unclean(self) -> None:
        """Without an end, the last events may be ahead of the windows by less than one logging interval."""
        track, base, line = self._track, self._base, self.stream.followed
        self._remainder = None
        last = None if line is None else line.event
        if line is None or last is None or track is None or track.end is not None:
            return
        if base is None or self._interval is None:
            return
        if last.step - base.step >= self._interval:
            self.findings.add(
                "LG202",
                f"step is {last.step - base.step} ahead of the last window of session {track.number}, "
                f"although a train event is due every {self._interval} updates",
                where=place(line),
            )

    def _check_whole(
        self, microbatches: int, attempts: int, *, at: str, may_be_closing: bool = False
    ) -> None:
        track = self._track
        if track is None:
            return
        start = track.start
        remainder = microbatches - start.microbatches - (attempts - start.attempts) * start.accumulation
        # A whole window without its attempt is a remainder too: the error came between the two.
        if may_be_closing and 0 < remainder <= start.accumulation:
            self._remainder = (remainder, self.stream.where)
        elif remainder != 0:
            self._add_remainder(remainder, track, at=at, where=self.stream.where)

    def _refute_remainder(self) -> None:
        """Report a remainder that was not its session's last word."""
        if self._remainder is None or self._track is None:
            return
        remainder, where = self._remainder
        self._remainder = None
        self._add_remainder(
            remainder, self._track, at="a train event that does not close an interrupted session", where=where
        )

    def _add_remainder(self, remainder: int, track: Track, *, at: str, where: str) -> None:
        self.findings.add(
            "LG204",
            f"at {at} microbatches are {remainder} away from attempts × accumulation "
            f"({track.start.accumulation}): an accumulation window was cut, padded or counted twice",
            where=where,
            evidence={"remainder": remainder, "accumulation": track.start.accumulation},
        )


class SkipChecker(Checker):
    """LG205: every skipped attempt has its overflow event, and consecutive ones are counted."""

    rules: ClassVar[tuple[str, ...]] = ("LG205",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._consecutive: int | None = 0
        self._step = 0

    def on_session_start(self, event: SessionStart) -> None:
        """Take over the count from where the session starts."""
        self._step = event.step
        self._consecutive = self._count_at_start(event)
        if self.stream.track is not None:
            self.stream.track.skips_before = self._consecutive

    def _count_at_start(self, event: SessionStart) -> int | None:
        if event.parent is None:
            return 0
        parent = resolve_parent(self.stream, event)
        track = None if parent is None else self.stream.track_of(parent.session)
        if parent is None or track is None or starts_from_beginning(self.stream, event):
            return None
        return None if track.is_damaged else track.consecutive_at(parent.seq, parent.counters.step)

    def on_overflow(self, event: Overflow) -> None:
        """Count on, and look whether the reason is one."""
        if (refuted := _refuted_reason(event)) is not None:
            self.findings.add("LG205", refuted, where=self.stream.where)
        before = self._consecutive if event.step == self._step else 0
        if self.stream.previous is None:
            before = None
        if before is not None and event.consecutive != before + 1:
            self.findings.add(
                "LG205",
                f"consecutive is {event.consecutive}, but {before} attempts in a row were skipped before "
                "this one",
                where=self.stream.where,
                evidence={"found": event.consecutive, "expected": before + 1},
            )
        self._consecutive, self._step = event.consecutive, event.step

    def on_event(self, event: AnyEvent | UnknownEvent) -> None:
        """`skipped` grows at overflow events only."""
        before = self.stream.previous
        if before is None:
            return
        grown = event.skipped - before.skipped
        expected = 1 if isinstance(event, Overflow) else 0
        if grown == expected or isinstance(event, UnknownEvent):
            return
        if grown >= 0:  # a fall is LG206's
            self.findings.add(
                "LG205",
                f"skipped grows by {grown} here, but {'one attempt is' if expected else 'no attempt is'} "
                "reported skipped",
                where=self.stream.where,
                evidence={"grown": grown, "expected": expected},
            )


def _refuted_reason(event: Overflow) -> str | None:
    """Return how the attempt's own numbers contradict the reason for which it was skipped."""
    for reason, name in (("nonfinite_loss", "loss"), ("nonfinite_grad", "grad_norm")):
        value = getattr(event, name)
        if event.reason == reason and value is not None and is_finite(value):
            return f"the reason is {reason}, but {name} is {value}"
    return None
