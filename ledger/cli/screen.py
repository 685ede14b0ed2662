"""What commands print with: plain where nobody looks, and harmless whatever the records hold."""

from __future__ import annotations

import sys
import unicodedata

from ledger.errors import LedgerError

__all__ = ["harmless", "print_error"]


def harmless(text: str) -> str:
    """Return text with every character escaped that could steer a terminal or turn the reading direction."""
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return character
    return character.encode("unicode_escape").decode("ascii")


def print_error(error: LedgerError) -> None:
    """Print one clear line to standard error, in any encoding."""
    text = f"error: {harmless(str(error))}\n"
    encoding = sys.stderr.encoding or "ascii"
    sys.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding))
