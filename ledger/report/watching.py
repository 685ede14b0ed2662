"""A run that goes on, as a few lines: how far it is, how fast, how its loss falls, what was found so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from ledger.audit.following import RunView
from ledger.report.lines import Line, number, seconds
from ledger.report.verdict import STYLES

__all__ = ["sparkline", "view_line", "view_lines"]

BLOCKS: Final = "▁▂▃▄▅▆▇█"
PLAIN: Final = "_.-=*#"
"""The same where the output's encoding has no blocks."""
NARROWEST: Final = 20


def view_lines(view: RunView, *, width: int, has_blocks: bool) -> Iterator[Line]:
    """Yield the view in lines; sparkline and bar fit a screen of `width` columns."""
    room = max(NARROWEST, width - 24)
    ramp = BLOCKS if has_blocks else PLAIN
    yield Line(f"run {view.name or ''} {view.run_id or ''}".rstrip(), "bold")
    yield Line(f"status    {view.status}: {view.evidence}")
    if view.read_bytes < view.log_bytes and view.log_bytes > _BIG and not view.is_over:
        yield Line(f"reading   {view.read_bytes / view.log_bytes:.0%} of {number(view.log_bytes)} bytes")
    yield Line(f"step      {_progress(view)}")
    if view.target_step:
        yield Line(f"          {_bar(min(1.0, view.step / view.target_step), room, has_blocks=has_blocks)}")
    yield Line(f"loss      {number(view.loss)}  {sparkline(view.losses, width=room, ramp=ramp)}".rstrip())
    yield Line(f"rate      {_rate(view.training_rate)} training only, {_rate(view.wall_rate)} wall clock")
    yield Line(f"time left {_left(view)}")
    yield Line(f"skips     {_skips(view)}")
    yield Line(f"kept      {_kept(view)}")
    yield Line(f"evaluated {_evaluated(view)}")
    yield from _finding_lines(view)
    if view.notice is not None:
        yield Line(f"notice    {view.notice}", "bold yellow")


_BIG: Final = 1 << 24


def view_line(view: RunView) -> str:
    """Return the view in one line, for where there is no terminal."""
    parts = [
        view.status,
        f"step {_progress(view)}",
        f"loss {number(view.loss)}",
        _rate(view.wall_rate),
        f"left {_left(view)}",
        f"skipped {number(view.skipped)}",
        f"checkpoint {_kept(view)}",
        f"findings {_counts(view)}",
    ]
    return "; ".join(parts) + ("" if view.notice is None else f"; {view.notice}")


def sparkline(values: Sequence[float], *, width: int, ramp: str) -> str:
    """Return a row of characters, higher for greater; each stands for the mean of its share of the values."""
    if not values:
        return ""
    width = min(width, len(values))
    edges = [round(index * len(values) / width) for index in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    low, high = min(means), max(means)
    top = len(ramp) - 1
    reach = high - low
    if not 0 < reach < float("inf"):
        return ramp[0] * width
    return "".join(ramp[round(top * (mean - low) / reach)] for mean in means)


def _bar(share: float, width: int, *, has_blocks: bool) -> str:
    full, empty = ("█", "░") if has_blocks else ("#", ".")
    done = int(share * width)
    return f"{full * done}{empty * (width - done)} {share:.1%}"


def _progress(view: RunView) -> str:
    target = "" if view.target_step is None else f" of {number(view.target_step)}"
    session = "" if view.session is None else f", session {view.session}"
    return f"{number(view.step)}{target}{session}"


def _rate(rate: float | None) -> str:
    return "- tokens/s" if rate is None else f"{rate:,.0f} tokens/s"


def _left(view: RunView) -> str:
    return "-" if view.seconds_left is None else seconds(view.seconds_left)


def _skips(view: RunView) -> str:
    if not view.skipped:
        return "none"
    share = f" ({view.skipped / view.attempts:.2%})" if view.attempts else ""
    why = f", last: {view.last_skip}" if view.last_skip else ""
    return f"{number(view.skipped)} of {number(view.attempts)} attempts{share}{why}"


def _kept(view: RunView) -> str:
    return "none" if view.checkpoint is None else f"{view.checkpoint} at step {number(view.checkpoint_step)}"


def _evaluated(view: RunView) -> str:
    if view.evaluation is None:
        return "nothing yet"
    return f"{view.evaluation} {number(view.evaluation_loss)} at step {number(view.evaluation_step)}"


def _counts(view: RunView) -> str:
    return ", ".join(f"{count} {name}" for name, count in view.finding_counts.items() if count) or "none"


def _finding_lines(view: RunView) -> Iterator[Line]:
    yield Line(f"findings  {_counts(view)} (form and counters so far; ledger reconcile checks the rest)")
    for found in view.findings:
        text = f"          {found.severity} {found.rule} {found.where}: {found.message}"
        yield Line(text, STYLES[found.severity])
