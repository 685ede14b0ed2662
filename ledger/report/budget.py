"""The budget of a long run in words, and the real run against it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.records.fields import Measurement
from ledger.records.locks import Budget, Preemption
from ledger.report.lines import Line, table

__all__ = ["Spent", "against_budget", "budget_lines", "budget_rows"]


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a run really took so far, all sessions together; None where that is not at hand."""

    updates: int
    """Successful updates of the branch."""
    training_seconds: float
    data_seconds: float
    wall_seconds: float
    tokens_per_second: float | None
    checkpoints: int
    evaluation_seconds: float | None = None
    checkpoint_seconds: float | None = None
    checkpoint_bytes: int | None = None
    superseded_tokens: int | None = None
    spent_tokens: int | None = None


def budget_rows(budget: Budget) -> list[list[str]]:
    """Return what is projected and how much, a row each."""
    preemption = budget.preemption
    rows = [
        ["updates", f"{budget.updates:,}, that is {budget.planned_tokens:,} tokens"],
        ["training only", f"{hours(budget.training_hours)} at {budget.tokens_per_second:,.0f} tokens/s"],
        ["data wait", hours(budget.data_hours)],
        [
            "evaluation",
            f"{hours(budget.evaluation_hours)} in {budget.evaluations}, {budget.evaluation_share:.1%}",
        ],
        [
            "checkpoints",
            f"{hours(budget.checkpoint_hours)} in {budget.checkpoints}, {budget.checkpoint_share:.1%}",
        ],
        [
            "their volume",
            f"{size(budget.written_bytes)} written, {size(budget.kept_bytes)} kept at most at a time",
        ],
        ["wall clock", f"{hours(budget.wall_hours)} without an interruption"],
        ["disk", _disk(budget)],
        [f"interruptions, {preemption.per_day:g} a day", _interruptions(preemption)],
    ]
    if preemption.best_interval_hours is not None:
        best = hours(preemption.best_interval_hours)
        rows.append(["best interval", f"a checkpoint every {best} would cost the least at that rate"])
    return rows


def _interruptions(preemption: Preemption) -> str:
    again, starting = hours(preemption.superseded_hours), hours(preemption.restart_hours)
    return (
        f"{_amount(preemption.interruptions)} expected; {again} done again, {starting} starting up; wall clock "
        f"{hours(preemption.wall_hours)}"
    )


def _disk(budget: Budget) -> str:
    need = f"{size(budget.disk_bytes)} needed"
    if budget.free_bytes is None:
        return need
    verdict = "fits" if budget.disk_bytes < budget.free_bytes else "DOES NOT FIT"
    return f"{need}, {size(budget.free_bytes)} free: {verdict}"


def budget_lines(budget: Budget) -> Iterator[Line]:
    """Yield the budget as a table, and what it takes for granted."""
    yield from table(budget_rows(budget))
    yield from (Line(f"  assumes that {text}") for text in budget.assumptions)


def against_budget(budget: Budget, spent: Spent) -> list[list[str]]:
    """Return rows `[what, projected, real]`; what grows with the updates is projected for those made so far."""
    share = min(1.0, spent.updates / budget.updates) if budget.updates else 0.0
    rows = [
        ["updates", f"{budget.updates:,} in all", f"{spent.updates:,}, {share:.0%}"],
        ["training only", hours(budget.training_hours * share), _hours(spent.training_seconds)],
        ["tokens/s, training only", f"{budget.tokens_per_second:,.0f}", _rate(spent.tokens_per_second)],
        ["data wait", hours(budget.data_hours * share), _hours(spent.data_seconds)],
        ["evaluation", hours(budget.evaluation_hours * share), _hours(spent.evaluation_seconds)],
        ["checkpoints", f"{budget.checkpoints} in all", f"{spent.checkpoints}"],
        ["blocked by checkpoints", hours(budget.checkpoint_hours * share), _hours(spent.checkpoint_seconds)],
        ["checkpoints written", size(round(budget.written_bytes * share)), _size(spent.checkpoint_bytes)],
        ["wall clock", hours(budget.wall_hours * share), _hours(spent.wall_seconds)],
        ["done again", _done_again(budget), _superseded(spent)],
    ]
    return [row for row in rows if row[2] != ""]


def _done_again(budget: Budget) -> str:
    preemption = budget.preemption
    if isinstance(preemption.superseded_hours, str) or not budget.wall_hours:
        return hours(preemption.superseded_hours)
    share = preemption.superseded_hours / budget.wall_hours
    return f"{share:.1%} of the time, interrupted {preemption.per_day:g} times a day"


def _superseded(spent: Spent) -> str:
    if spent.superseded_tokens is None or not spent.spent_tokens:
        return ""
    return f"{spent.superseded_tokens / spent.spent_tokens:.1%} of the tokens"


def _hours(seconds: float | None) -> str:
    return "" if seconds is None else hours(seconds / 3600)


def _size(amount: int | None) -> str:
    return "" if amount is None else size(amount)


def hours(value: Measurement) -> str:
    """Return hours in the unit in which they are read."""
    if isinstance(value, str):
        return "no end in sight" if value == "Infinity" else value
    if value == 0:
        return "none"
    if value * 3600 < 0.1:
        return "under 0.1 s"
    if value < 1 / 60:
        return f"{value * 3600:.3g} s"
    if value < 1:
        return f"{value * 60:.3g} min"
    return f"{value:.3g} h" if value < 100 else f"{value:,.0f} h ({value / 24:.3g} days)"


def size(amount: int) -> str:
    """Return bytes in the unit in which they are read."""
    value, units = float(amount), ["bytes", "kB", "MB", "GB", "TB", "PB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}" if units[0] != "bytes" else f"{amount} bytes"


def _amount(value: Measurement) -> str:
    return str(value) if isinstance(value, str) else f"{value:.2g}"


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"
