"""How a session ends: the words of an end that nobody explained, and what an exception that left the loop says."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.records.events import SessionStatus

__all__ = ["Ending", "default_reason", "ending_after"]

_SIGNAL_EXIT_CODES = 128
"""A shell adds this to the number of the signal that a process ended by."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Status, reason and error of a session's end."""

    status: SessionStatus
    reason: str
    error: str | None = None


def default_reason(status: SessionStatus) -> str:
    """Return why a session ended so, where the loop does not say."""
    reasons: dict[SessionStatus, str] = {
        "completed": "the target step was reached",
        "closed": "the parent stands at the target step; no update was due",
        "stopped": "the training loop returned before the target step",
        "interrupted": "a signal asked for it",
        "failed": "an error ended the training loop",
    }
    return reasons[status]


def ending_after(error: BaseException, *, is_inside_window: bool) -> Ending:
    """Return the end of a session whose loop an exception left.

    `SystemExit` is how a program says that it is done: without a code, or with 0, on purpose (`stopped`, but inside an
    accumulation window `interrupted`, for its attempt is lost); with 128 + N by the signal N; with another code by an
    error.
    """
    if isinstance(error, KeyboardInterrupt):
        return Ending(status="interrupted", reason="keyboard interrupt")
    if isinstance(error, SystemExit):
        reason = f"the training loop left by SystemExit({error.code!r})"
        if isinstance(error.code, int) and error.code > _SIGNAL_EXIT_CODES:
            return Ending(status="interrupted", reason=reason)
        if error.code in (None, 0):
            return Ending(status="interrupted" if is_inside_window else "stopped", reason=reason)
    return Ending(
        status="failed",
        reason="the training loop raised",
        error=f"{type(error).__name__}: {error}"[:2_000],
    )
