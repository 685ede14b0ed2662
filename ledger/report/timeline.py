"""The history of a run drawn with characters: sessions as rows over a common scale of steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ledger.audit import SessionSummary, Summary
from ledger.records.documents import Verdict
from ledger.report.lines import Line, blank, heading, number
from ledger.report.scales import round_numbers

__all__ = [
    "ASCII",
    "PLAIN",
    "UNICODE",
    "Glyphs",
    "Lane",
    "Screen",
    "lanes_of_summary",
    "lanes_of_verdict",
    "timeline",
]

SHOWN_FIRST: Final = 3
SHOWN_LAST: Final = 20
NARROWEST: Final = 24
"""Columns that the drawing itself takes at least."""
TICK_COLUMNS: Final = 16
"""Columns between two numbers of the scale, about."""


class Glyphs(NamedTuple):
    """The characters of a drawing."""

    branch: str
    superseded: str
    checkpoint: str
    taken_up: str
    beginning: str
    ended: str
    no_end: str
    running: str


UNICODE: Final = Glyphs("━", "┄", "●", "└", "├", "■", "╳", "▶")
ASCII: Final = Glyphs("=", ".", "o", "`", "|", "#", "x", ">")
_MEANINGS: Final = Glyphs(
    branch="on the current branch",
    superseded="superseded",
    checkpoint="checkpoint kept",
    taken_up="taken up from a checkpoint",
    beginning="from the beginning",
    ended="ended",
    no_end="no end (killed)",
    running="still running",
)


class Screen(NamedTuple):
    """What is drawn on: how many columns, and in which characters."""

    width: int = 80
    glyphs: Glyphs = UNICODE


PLAIN: Final = Screen()
"""Where nothing is known of the screen."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One session, as far as a drawing shows it."""

    session: int
    start: str
    parent: int | None
    """The session whose checkpoint it took up."""
    first: int
    last: int
    branch_end: int | None
    """The step up to which it lies on the current branch; None where nothing of it does."""
    checkpoints: Sequence[int]
    """Steps of the checkpoints that are kept, or an even choice of them."""
    status: str

    @property
    def end_kind(self) -> str:
        """The field of `Glyphs` that its last step bears."""
        return {"no end": "no_end", "running": "running"}.get(self.status, "ended")


def lanes_of_verdict(verdict: Verdict) -> list[Lane]:
    """Return the sessions that a verdict's account tells of."""
    sessions = verdict.account.get("sessions") or []
    lanes = [
        Lane(
            session=found["session"],
            start=found["start"],
            parent=found.get("parent_session"),
            first=found["first_step"],
            last=found["last_step"],
            branch_end=found["on_branch_up_to_step"],
            checkpoints=found.get("kept_checkpoints") or [],
            status=found["status"],
        )
        for found in sessions
    ]
    return _with_running(lanes, is_live=verdict.status == "running")


def lanes_of_summary(summary: Summary) -> list[Lane]:
    """Return the sessions of a summary."""
    sessions: list[SessionSummary] = [*summary.earlier, *([] if summary.latest is None else [summary.latest])]
    lanes = [
        Lane(
            session=found.session,
            start=found.start,
            parent=found.parent_session,
            first=found.first.step,
            last=found.last.step,
            branch_end=found.on_branch_up_to_step,
            checkpoints=found.kept_checkpoints,
            status=found.status,
        )
        for found in sessions
    ]
    return _with_running(lanes, is_live=summary.is_live)


def _with_running(lanes: list[Lane], *, is_live: bool) -> list[Lane]:
    if not lanes or not is_live or lanes[-1].status != "no end":
        return lanes
    last = lanes[-1]
    return [*lanes[:-1], Lane(**{**vars(last), "status": "running"})]


def timeline(lanes: Sequence[Lane], *, screen: Screen) -> Iterator[Line]:
    """Yield the drawing; nothing where there is one session, or no step between the first and the last.

    However many sessions there are, a bounded number of lines is drawn: those in the middle share one.
    """
    steps = [step for lane in lanes for step in (lane.first, lane.last)]
    low, high = min(steps, default=0), max(steps, default=0)
    if len(lanes) < 2 or low >= high:
        return
    rows = _rows(lanes)
    labels = [_label(row) for row in rows]
    tails = [_tail(row) for row in rows]
    left, right = max(map(len, labels)), max(map(len, tails))
    columns = max(NARROWEST, screen.width - left - right - 4)
    scale = _Scale(low, high, columns)
    yield blank()
    yield heading(f"history: steps {number(low)} to {number(high)}, {number(len(lanes))} sessions")
    for row, label, tail in zip(rows, labels, tails, strict=True):
        drawn = _draw(row, scale, screen.glyphs)
        style = "" if any(lane.branch_end is not None for lane in row) else "dim"
        yield Line(f"  {label:<{left}} {drawn} {tail}".rstrip(), style)
    yield Line(f"  {'':<{left}} {scale.ticks()}".rstrip(), "dim")
    yield from _legend(rows, screen)


class _Scale(NamedTuple):
    """Steps to columns."""

    low: int
    high: int
    columns: int

    def column(self, step: int) -> int:
        """Return the column of a step; a damaged log may name one beyond the scale."""
        inside = min(max(step, self.low), self.high)
        return round((inside - self.low) * (self.columns - 1) / (self.high - self.low))

    def ticks(self) -> str:
        """Return a line with some steps written at their columns."""
        text = ""
        count = max(1, self.columns // TICK_COLUMNS)
        for mark in sorted({self.low, *map(int, round_numbers(self.low, self.high, count=count)), self.high}):
            shown = number(mark)
            at = min(self.column(mark), self.columns - len(shown))
            if at > len(text) or not text:
                text = text.ljust(at) + shown
        return text


def _rows(lanes: Sequence[Lane]) -> list[list[Lane]]:
    """Return a row for each session; where there are too many, one for all in the middle together."""
    if len(lanes) <= SHOWN_FIRST + SHOWN_LAST + 1:
        return [[lane] for lane in lanes]
    first, middle, last = lanes[:SHOWN_FIRST], lanes[SHOWN_FIRST:-SHOWN_LAST], lanes[-SHOWN_LAST:]
    return [*[[lane] for lane in first], [*middle], *[[lane] for lane in last]]


def _label(row: Sequence[Lane]) -> str:
    lane = row[0]
    if len(row) > 1:
        return f"{lane.session} to {row[-1].session}"
    return f"{lane.session} {lane.start}" + ("" if lane.parent is None else f" from {lane.parent}")


def _tail(row: Sequence[Lane]) -> str:
    if len(row) == 1:
        return row[0].status
    on_branch = sum(lane.branch_end is not None for lane in row)
    return f"{number(on_branch)} of {number(len(row))} on the branch"


def _draw(row: Sequence[Lane], scale: _Scale, glyphs: Glyphs) -> str:
    """Paint the sessions of one row, what is on the branch over what is not; of one alone the rest, too."""
    cells = [" "] * scale.columns
    for lane in row:
        _paint(cells, scale, lane.first, lane.last, glyphs.superseded)
    for lane in row:
        if lane.branch_end is not None:
            _paint(cells, scale, lane.first, lane.branch_end, glyphs.branch)
    if len(row) == 1:
        lane = row[0]
        for step in lane.checkpoints:
            if lane.first <= step <= lane.last:
                cells[scale.column(step)] = glyphs.checkpoint
        cells[scale.column(lane.first)] = glyphs.beginning if lane.parent is None else glyphs.taken_up
        cells[scale.column(lane.last)] = getattr(glyphs, lane.end_kind)
    return "".join(cells)


def _paint(cells: list[str], scale: _Scale, first: int, last: int, glyph: str) -> None:
    if last >= first:
        begin, end = scale.column(first), scale.column(last) + 1
        cells[begin:end] = glyph * (end - begin)


def _legend(rows: Iterable[Sequence[Lane]], screen: Screen) -> Iterator[Line]:
    """Yield what the characters mean that were used, in as many lines as it takes."""
    used = {"branch", "superseded", "checkpoint"}
    for row in rows:
        if len(row) == 1:
            used |= {row[0].end_kind, "beginning" if row[0].parent is None else "taken_up"}
    line = " "
    for name in Glyphs._fields:
        if name not in used:
            continue
        entry = f" {getattr(screen.glyphs, name)} {getattr(_MEANINGS, name)} "
        if len(line) + len(entry) > screen.width and line.strip():
            yield Line(line.rstrip(), "dim")
            line = " "
        line += entry
    yield Line(line.rstrip(), "dim")
