"""A run's head as it is quoted elsewhere: three short lines that say which run, how far its log goes, and its seal.

Whoever has them can tell later that the log was not cut or rewritten behind its head and that the seal is the same one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ledger.errors import LedgerError, UsageError
from ledger.records.fields import MAX_INTEGER
from ledger.records.parts import LogPosition
from ledger.storage.files import read_regular_file

__all__ = ["QUOTED", "QuotedHead", "head_lines", "parse_head"]

QUOTED: Final = "--expect-head"
"""Where a finding about a quoted head stands."""

MAX_BYTES: Final = 1 << 16
_PARTS: Final = re.compile(
    r"(?:run\s+(?P<run>\S+)\s+)?"
    r"(?:head\s+)?(?P<seq>[0-9]{1,16}):(?P<chain>[0-9a-f]{64})"
    r"(?:\s+seal\s+(?P<seal>[0-9a-f]{64}))?"
)


@dataclass(frozen=True, kw_only=True)
class QuotedHead:
    """What somebody noted of a run; None where a part was not noted."""

    run_id: str | None
    log: LogPosition
    seal_sha256: str | None


def head_lines(*, run_id: str, log: LogPosition, seal_sha256: str | None) -> list[str]:
    """Return the lines to quote; without a seal there are two."""
    lines = [f"run {run_id}", f"head {log.seq}:{log.chain}"]
    return lines if seal_sha256 is None else [*lines, f"seal {seal_sha256}"]


def parse_head(text: str) -> QuotedHead:
    """Return what the lines of `head_lines` say, however they are spaced; `SEQ:CHAIN` alone will do.

    Args:
        text: the lines themselves, or the path of a file that holds them.

    Raises:
        UsageError: it is neither, or the file cannot be read.
    """
    match = _PARTS.fullmatch(text.strip()) or _PARTS.fullmatch(_content(text).strip())
    if match is None or int(match["seq"]) > MAX_INTEGER:
        raise _refusal(text)
    return QuotedHead(
        run_id=match["run"], log=LogPosition(int(match["seq"]), match["chain"]), seal_sha256=match["seal"]
    )


def _content(path: str) -> str:
    """Return what a file holds."""
    if not path.strip() or "\0" in path:
        raise _refusal(path)
    try:
        return read_regular_file(path, max_bytes=MAX_BYTES).decode("utf-8", "replace")
    except LedgerError as error:
        raise _refusal(path) from error


def _refusal(text: str) -> UsageError:
    return UsageError(
        f"{ascii(text)[:80]} is no head of a run",
        expected="the lines that ledger seal printed (run, head, seal), or a file that holds them",
    )
