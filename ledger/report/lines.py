"""Lines of text with a style each: what a report is made of before a terminal sees it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

__all__ = ["Line", "blank", "bounded_table", "heading", "number", "seconds", "table"]

_GROUPED_DIGITS: Final = 10_000
_FIRST_ROWS: Final = 3
_LAST_ROWS: Final = 37
_EXACT: Final = 1e15
"""Below this a float without a fraction is shown as the integer that it is."""


class Line(NamedTuple):
    """One line: its text, which may hold anything a record holds, and how it should look."""

    text: str
    style: str = ""


def heading(text: str) -> Line:
    """Return a line that begins a part of a report."""
    return Line(text, "bold")


def blank() -> Line:
    """Return an empty line."""
    return Line("")


def number(value: object) -> str:
    """Return a number for people: integers in groups of three, floats with six digits, nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= _GROUPED_DIGITS else str(value)
    if value.is_integer() and abs(value) < _EXACT:
        return number(int(value))
    return f"{value:.6g}"


def seconds(value: float) -> str:
    """Return a duration for people."""
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def table(rows: Sequence[Sequence[str]], *, indent: str = "  ", style: str = "") -> Iterable[Line]:
    """Yield rows with their columns aligned to the left; a row may be shorter than others."""
    columns = max((len(row) for row in rows), default=0)
    widths = [
        max((len(row[index]) for row in rows if index < len(row)), default=0) for index in range(columns)
    ]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield Line((indent + "  ".join(cells)).rstrip(), style)


def bounded_table(rows: Sequence[Sequence[str]]) -> Iterable[Line]:
    """Yield a table of which, where it is very long, the middle is left out and counted."""
    left_out = len(rows) - _FIRST_ROWS - _LAST_ROWS
    if left_out <= 1:
        return table(rows)
    lines = list(table([*rows[:_FIRST_ROWS], *rows[-_LAST_ROWS:]]))
    return [*lines[:_FIRST_ROWS], Line(f"  … {number(left_out)} more …"), *lines[_FIRST_ROWS:]]
