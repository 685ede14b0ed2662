"""The one seam for time. Order never comes from the wall clock; durations come from the monotonic one."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What tells the time."""

    def now(self) -> str:
        """Return the wall-clock time as records write it: RFC 3339, UTC, microseconds, `Z`."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never falls."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> str:
        """Return the wall-clock time as records write it: RFC 3339, UTC, microseconds, `Z`."""
        return datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never falls."""
        return time.monotonic()
