"""A stopwatch that is always in exactly one phase, so that the phases of a session sum to its wall clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ledger.records.events import PHASES
from ledger.storage.clock import Clock

__all__ = ["PhaseClock"]


class PhaseClock:
    """Divides elapsed time among phases; starts in `startup`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = self._since = clock.monotonic()
        self._phase = "startup"
        self._seconds = dict.fromkeys(PHASES, 0.0)

    @property
    def elapsed(self) -> float:
        """Seconds since the stopwatch started."""
        return self._clock.monotonic() - self._started

    @property
    def phase(self) -> str:
        """The phase that time is being counted for."""
        return self._phase

    def switch(self, phase: str) -> str:
        """Count time for `phase` from now on; return the phase before."""
        now = self._clock.monotonic()
        self._seconds[self._phase] += now - self._since
        self._since = now
        previous, self._phase = self._phase, phase
        return previous

    @contextmanager
    def within(self, phase: str) -> Iterator[None]:
        """Count time for `phase` inside the block and return to the phase before after it."""
        previous = self.switch(phase)
        try:
            yield
        finally:
            self.switch(previous)

    def seconds(self, phase: str) -> float:
        """Return the seconds counted for one phase so far."""
        running = self._clock.monotonic() - self._since if phase == self._phase else 0.0
        return self._seconds[phase] + running

    def take(self, phase: str) -> float:
        """Return the seconds of one phase since they were last taken, and start it again from 0.

        Whoever takes keeps the sum; what is taken in pieces is never counted twice.
        """
        self.switch(self._phase)
        taken, self._seconds[phase] = self._seconds[phase], 0.0
        return taken

    def totals(self) -> dict[str, float]:
        """Return the seconds of every phase that have not been taken."""
        self.switch(self._phase)
        return dict(self._seconds)
