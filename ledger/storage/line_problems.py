"""What is wrong with a line of the log, in words that tell a person what happened to the file."""

from __future__ import annotations

import json
import re
from typing import Final

from ledger.records.events import LOG_VERSION
from ledger.storage.chain import MAX_LINE_BYTES, split_line
from ledger.storage.hints import describe_foreign_bytes

__all__ = ["describe_line", "describe_tail", "describe_too_long", "newer_version"]

_LINE_BEGINNING: Final = b'{"event":"'
_LOG_VERSION: Final = re.compile(rb'"log_version":([0-9]{1,9})[,}]')


def describe_line(line: bytes, *, number: int, error: Exception | None) -> str:
    """Say what is wrong with a line (without its newline) that holds no event; `error` is the decoder's."""
    if not line:
        return "the line is blank; the ledger writes none"
    if (hint := _describe_bytes(line, number=number)) is not None:
        return hint
    if error is not None and split_line(line) is not None:
        reason = "its values are nested too deeply" if isinstance(error, RecursionError) else str(error)
        return f"it is not the encoding of a known event: {reason}"
    if _is_json_object(line):
        return (
            'it does not end with `,"chain":"<64 hex digits>"}`: a tool rewrote, reordered or reformatted it'
        )
    return 'it is no whole JSON object that ends with `,"chain":"<64 hex digits>"}`'


def describe_tail(beginning: bytes, *, offset: int) -> str | None:
    """Say why the bytes after the last newline cannot be a write that was cut short, or `None` if they can.

    A cut write is a beginning of a line; a power cut may leave NULs, or blocks of anything, in place of its end.
    """
    if (
        beginning.startswith(_LINE_BEGINNING)
        or _LINE_BEGINNING.startswith(beginning)
        or beginning[:1] == b"\x00"
    ):
        return None
    if offset == 0:
        hint = describe_foreign_bytes(beginning)
        return f"this is no event log: {hint or 'it does not begin with an event'}"
    return None


def newer_version(line: bytes) -> int | None:
    """Return the log version that a `session_start` states if it is newer than this program's."""
    if not line.startswith(b'{"event":"session_start"'):
        return None
    match = _LOG_VERSION.search(line)
    version = int(match.group(1)) if match else LOG_VERSION
    return version if version > LOG_VERSION else None


def describe_too_long(length: int) -> str:
    """Say that a line of `length` bytes, its newline included, exceeds the bound."""
    return f"the line holds {length:,} bytes; a line holds at most {MAX_LINE_BYTES:,}"


def _describe_bytes(line: bytes, *, number: int) -> str | None:
    if number == 1 and (hint := describe_foreign_bytes(line)) is not None:
        return hint
    if line.endswith(b"\r"):
        return "it ends with CRLF: something converted the line ends (git's autocrlf, an editor); restore the original"
    if b"\x00" in line:
        first = line.index(b"\x00")
        count = line.count(b"\x00")
        return f"it holds {count:,} NUL bytes from byte {first:,} on: blocks were lost (a power cut, a sparse copy)"
    if line in {b"{", b"["} or line[:1] in {b" ", b"\t"}:
        return "it was pretty-printed or indented by a tool; restore the original"
    return None


def _is_json_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
