"""Printing results: styled on a terminal, plain elsewhere, harmless in every encoding."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledger.records.base import Record
from ledger.records.documents import Verdict
from ledger.records.fields import Json
from ledger.report.harmless import one_line
from ledger.report.lines import Line
from ledger.report.timeline import ASCII, UNICODE, Screen
from ledger.storage.filesystem import OS

__all__ = [
    "EXIT_CODES",
    "print_json",
    "print_lines",
    "print_record",
    "print_table",
    "print_text",
    "screen",
    "survive_encoding",
    "verdict_exit",
    "warn",
    "warn_about_link",
]

EXIT_CODES: Final = {"passed": 0, "failed": 1, "incomplete": 3}
"""Verdict to exit code."""

NARROWEST: Final = 72
"""Columns that a table needs at least; what does not fit a screen is wrapped by it."""

USUAL: Final = 80
"""Columns that a screen has which does not say."""

UNLIMITED: Final = 1 << 20
"""Columns of a line that is never broken here."""


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines to standard output; a terminal wraps them itself, so that no width can break them."""
    survive_encoding()
    # A width of its own, because rich prints nothing at all where COLUMNS is 0.
    console = Console(width=UNLIMITED, soft_wrap=True, highlight=False, markup=False, emoji=False)
    for line in lines:
        console.print(Text(one_line(line.text), style=line.style))


def screen() -> Screen:
    """Return what standard output shows: its columns, and whether more than ASCII can be drawn on it."""
    width = Console().width
    try:
        "".join(UNICODE).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        glyphs = ASCII
    else:
        glyphs = UNICODE
    return Screen(width=width if width >= NARROWEST else USUAL, glyphs=glyphs)


def print_table(table: Table) -> None:
    """Print a table to standard output, as wide as a screen but never too narrow to read."""
    survive_encoding()
    width = Console().width
    Console(width=max(width, NARROWEST)).print(table)


def print_json(value: Json) -> None:
    """Print a JSON value in ASCII, so that nothing in it can steer a terminal."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_text(text: str) -> None:
    """Print text as it is: ASCII, or harmless and behind `survive_encoding`."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_record(record: Record) -> None:
    """Print a document, or another record, as JSON."""
    print_json(record.model_dump(mode="json", by_alias=True))


def verdict_exit(verdict: Verdict) -> typer.Exit:
    """Return the exit that a verdict stands for."""
    return typer.Exit(EXIT_CODES[verdict.verdict])


def warn_about_link(path: Path) -> None:
    """Say on standard error where a path leads that is a symbolic link."""
    found = OS.look(path)
    if found is not None and stat.S_ISLNK(found.st_mode):
        warn(f"{path} is a link to {path.resolve()}")


def warn(text: str) -> None:
    """Print a warning to standard error, in any encoding."""
    encoding = sys.stderr.encoding or "ascii"
    line = one_line(f"warning: {text}").encode(encoding, "backslashreplace").decode(encoding)
    sys.stderr.write(line + "\n")


def survive_encoding() -> None:
    """Escape, from now on, what standard output's encoding has no characters for."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
