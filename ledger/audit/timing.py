"""LG212: seconds of windows and phases against the session's clock."""

from __future__ import annotations

from typing import ClassVar, Final

from ledger.audit.stream import Checker, Stream
from ledger.records.events import (
    AnyEvent,
    Checkpoint,
    Export,
    SessionEnd,
    SessionStart,
    Train,
    UnknownEvent,
    Validation,
)
from ledger.records.layout import LOG

__all__ = ["TimingChecker"]

TOLERANCE_SECONDS: Final = 1e-3
"""What sums of a million rounded numbers may be off by."""

MEASURED: Final = ("train", "data", "evaluate", "checkpoint")
"""The phases that events state seconds of."""


class TimingChecker(Checker):
    """Adds up what events state and compares with elapsed time and the phases of the session's end."""

    rules: ClassVar[tuple[str, ...]] = ("LG212",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._session = 0
        self._sums = dict.fromkeys(MEASURED, 0.0)

    def on_session_start(self, event: SessionStart) -> None:
        """Judge the session before by its elapsed time, and begin to add up."""
        self._check_elapsed()
        self._session = event.session
        self._sums = dict.fromkeys(MEASURED, 0.0)

    def on_train(self, event: Train) -> None:
        """Add a window."""
        self._sums["train"] += event.window.seconds
        self._sums["data"] += event.window.data_seconds

    def on_val(self, event: Validation) -> None:
        """Add an evaluation."""
        self._sums["evaluate"] += event.seconds

    def on_checkpoint(self, event: Checkpoint) -> None:
        """Add the seconds that the loop was blocked."""
        self._sums["checkpoint"] += event.seconds

    def on_session_end(self, event: SessionEnd) -> None:
        """Compare with the phases; in a session that is done they are equal."""
        track = self.stream.track
        if track is None or track.is_damaged:
            return
        must_be_equal = event.status in {"completed", "closed"}
        for phase, total in self._sums.items():
            stated = event.phases.get(phase, 0.0)
            short = total - stated
            if short > TOLERANCE_SECONDS or (must_be_equal and -short > TOLERANCE_SECONDS):
                self.findings.add(
                    "LG212",
                    f"the phase {phase} took {stated:.3f} s, but the session's events state {total:.3f} s of it",
                    where=self.stream.where,
                    evidence={"phase": stated, "events": total},
                )

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Add an export."""
        if isinstance(event, Export):
            self._sums["checkpoint"] += event.seconds

    def finish(self) -> None:
        """Judge the last session by its elapsed time."""
        self._check_elapsed()

    def _check_elapsed(self) -> None:
        """Compare with the clock on the last line of the session that was added up."""
        last = None if self.stream.followed is None else self.stream.followed.event
        elapsed = 0.0 if last is None else last.elapsed
        total = sum(self._sums.values())
        if total > elapsed + TOLERANCE_SECONDS:
            self.findings.add(
                "LG212",
                f"session {self._session} states {total:.3f} s of work within {elapsed:.3f} s",
                where=f"{LOG}, session {self._session}",
                evidence={"stated": total, "elapsed": elapsed},
            )
