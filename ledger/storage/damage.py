"""The error for a log that is damaged, so that nothing may be appended to it or truncated from it."""

from __future__ import annotations

from ledger.errors import LedgerError, NewerVersionError, VerificationError
from ledger.records.events import SessionStart
from ledger.storage.filesystem import StrPath
from ledger.storage.log_reader import LogLine

__all__ = ["damage_error"]


def damage_error(line: LogLine, path: StrPath) -> LedgerError:
    """Return the error that names a damaged line's number, byte offset and problem."""
    place = f"line {line.number:,} (byte {line.offset:,})"
    if line.newer_version is not None:
        return NewerVersionError(
            f"this session wrote log version {line.newer_version}",
            path=path,
            place=place,
            advice="use a ledger of at least the version that wrote it",
        )
    return VerificationError(
        f"the log is damaged: {line.problem or _sequence_problem(line)}",
        path=path,
        place=place,
        advice="nothing was changed; restore the file from a copy",
    )


def _sequence_problem(line: LogLine) -> str:
    if line.event is not None and line.event.seq != line.number - 1:
        return f"its seq is {line.event.seq:,} where {line.number - 1:,} belongs: lines are missing or were added"
    if not isinstance(line.event, SessionStart):
        return "it does not begin with a session_start: its head was cut off"
    return "it does not follow from the lines before"
