"""A clock that moves a fixed step at every look, so that records repeat byte for byte."""

from __future__ import annotations


class SteppingClock:
    """Starts at a fixed moment; every reading is a little later than the one before."""

    def __init__(self, *, step_seconds: float = 0.125) -> None:
        self._seconds = 0.0
        self._step = step_seconds

    def now(self) -> str:
        """Return a wall-clock time that follows the monotonic one."""
        whole = int(self._seconds)
        micro = int((self._seconds - whole) * 1_000_000)
        return f"2026-01-01T{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}.{micro:06d}Z"

    def monotonic(self) -> float:
        """Return the seconds and move on."""
        self._seconds += self._step
        return self._seconds
