"""The chain that makes the log one piece: each line ends with a digest over it and the line before.

A line is `{event…,"chain":"<64 hex digits>"}` and a newline. The digest covers the previous line's digest (64 ASCII
bytes) and this line without its last 76 bytes; the first line's predecessor is made from the run id.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

__all__ = ["MAX_LINE_BYTES", "SUFFIX_BYTES", "chain_line", "first_chain", "next_chain", "split_line"]

MAX_LINE_BYTES: Final = 1 << 20
"""The greatest length of a line of the log, newline included."""

SUFFIX_BYTES: Final = 76
"""The length of `,"chain":"<64 hex digits>"}`."""

_SUFFIX: Final = re.compile(rb',"chain":"([0-9a-f]{64})"}')


def first_chain(run_id: str) -> str:
    """Return what stands before the first line of a run's log."""
    return hashlib.sha256(b"ledger-log-v1\n" + run_id.encode()).hexdigest()


def next_chain(previous: str, body: bytes) -> str:
    """Return the digest of a line from the one before and the event's encoding `{…}`."""
    return hashlib.sha256(previous.encode() + body[:-1]).hexdigest()


def chain_line(previous: str, body: bytes) -> tuple[bytes, str]:
    """Return the stored line of an event's encoding `{…}`, newline included, and its digest."""
    chain = next_chain(previous, body)
    return b'%b,"chain":"%b"}\n' % (body[:-1], chain.encode()), chain


def split_line(line: bytes) -> tuple[bytes, str] | None:
    """Split a stored line without its newline into the event's encoding `{…}` and its digest.

    Returns `None` where the line does not end as a chained line does.
    """
    end = len(line) - SUFFIX_BYTES
    suffix = _SUFFIX.fullmatch(line, end) if end > 0 else None
    return None if suffix is None else (line[:end] + b"}", suffix[1].decode("ascii"))
