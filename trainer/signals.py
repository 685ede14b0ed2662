"""Requests to stop: the first one is honoured at the end of the accumulation window, a second one at once."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

__all__ = ["StopRequest"]

LISTENED: Final = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Remembers that SIGINT or SIGTERM asked the training to end."""

    def __init__(self) -> None:
        self._signal: signal.Signals | None = None
        self.made_at: float | None = None
        """`time.monotonic()` when the first request came; None without one."""

    @property
    def is_made(self) -> bool:
        """Somebody asked to stop."""
        return self._signal is not None

    @property
    def reason(self) -> str:
        """Name of the signal, for the record."""
        return "" if self._signal is None else self._signal.name

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that ended by this signal: 130 or 143."""
        return 0 if self._signal is None else 128 + self._signal

    def make(self, number: int) -> None:
        """Ask to stop, as the signal of this number does; asked twice, end at once.

        Raises:
            KeyboardInterrupt: it was asked before.
        """
        if self._signal is not None:
            raise KeyboardInterrupt(self.reason)
        self._signal = signal.Signals(number)
        self.made_at = time.monotonic()

    def seconds_left(self, *, grace_seconds: float) -> float:
        """Return what is left of the grace period, which begins with the request; all of it without one."""
        return grace_seconds if self.made_at is None else grace_seconds - (time.monotonic() - self.made_at)

    def refuse_to_begin(self) -> None:
        """Raise `KeyboardInterrupt` if somebody asked to stop before anything began."""
        if self._signal is not None:
            raise KeyboardInterrupt(self.reason)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Receive the signals inside the block; afterwards they do what they did before."""
        previous = {number: signal.signal(number, self._receive) for number in LISTENED}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        self.make(number)
