"""A summary as text."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit import BestLoss, SessionSummary, Summary
from ledger.records.locks import Budget
from ledger.report.budget import Spent, against_budget
from ledger.report.lines import Line, blank, bounded_table, heading, number, seconds, table
from ledger.report.timeline import PLAIN, Screen, lanes_of_summary, timeline
from ledger.report.verdict import STYLES, finding_lines

__all__ = ["summary_lines"]


def summary_lines(
    summary: Summary, *, screen: Screen = PLAIN, budget: Budget | None = None
) -> Iterator[Line]:
    """Yield the lines of a report: the latest session, one line for each earlier one, the history, a lock's budget."""
    name = summary.name or "run"
    yield Line(
        f"{name} {summary.run_id or ''}".rstrip() + f": {summary.verdict.upper()}", STYLES[summary.verdict]
    )
    if summary.is_live:
        yield Line("a writer holds the run: this is how far its log had come")
    if summary.verdict == "passed":
        yield Line("judged: the log's form and counters; whether the run is done: ledger reconcile")
    elif not summary.is_live and summary.latest is not None and summary.latest.status == "no end":
        yield Line(
            "the latest session has no end: why it stopped, nobody can judge; resume it, or: ledger reconcile"
        )
    if summary.required_end is not None:
        yield Line(f"required: a session_end at step {summary.required_end}")
    latest = summary.latest
    if latest is None:
        yield Line("the log tells of no session")
    else:
        yield blank()
        yield heading(f"latest session, number {latest.session}")
        yield from table(_rows(latest, summary.target_step))
    if summary.best is not None:
        yield Line(_best(summary.best))
    if summary.earlier:
        yield blank()
        yield heading("earlier sessions")
        yield from bounded_table([_earlier_row(session) for session in summary.earlier])
    yield from timeline(lanes_of_summary(summary), screen=screen)
    if budget is not None and latest is not None:
        yield blank()
        yield heading("against the budget of its lock, all sessions: projected, real")
        yield from table(against_budget(budget, _spent(latest, summary.earlier)))
    yield from finding_lines(summary.findings, summary.finding_counts, summary.rule_counts)


def _spent(latest: SessionSummary, earlier: list[SessionSummary]) -> Spent:
    sessions = [*earlier, latest]
    training = sum(session.training_seconds for session in sessions)
    tokens = sum(session.tokens for session in sessions)
    return Spent(
        updates=latest.last.step,
        training_seconds=training,
        data_seconds=sum(session.data_seconds for session in sessions),
        wall_seconds=sum(session.elapsed_seconds for session in sessions),
        tokens_per_second=tokens / training if training > 0 else None,
        checkpoints=sum(session.checkpoints for session in sessions),
        superseded_tokens=max(0, tokens - latest.last.tokens_seen),
        spent_tokens=tokens,
    )


def _best(best: BestLoss) -> str:
    extent = "" if best.complete else f" (a subset of {best.tokens:,} tokens)"
    kept = f"checkpoint {best.checkpoint}" if best.checkpoint else "no checkpoint of it is kept"
    return f"best {best.split} loss {number(best.loss)} at step {best.step}{extent}, {kept}"


def _rows(session: SessionSummary, target: int | None) -> list[list[str]]:
    rows = [
        [
            "started",
            f"{session.started}, {session.start}" + (f" from {session.parent}" if session.parent else ""),
        ],
        ["ended", session.status + (f": {session.reason}" if session.reason else "")],
        ["step", f"{session.first.step} to {session.last.step}, target {number(target)}"],
        ["updates", f"{session.updates} of {session.attempts} attempts, {session.skipped} skipped"],
        ["tokens", f"{number(session.tokens)} in {number(session.microbatches)} microbatches"],
        ["loss", f"{number(session.loss_first)} first, {number(session.loss_last)} last"],
        ["grad norm", f"{number(session.grad_norm_last)} last, {number(session.grad_norm_max)} greatest"],
        ["clipped", f"{session.clipped} updates; non-finite measurements: {session.nonfinite}"],
    ]
    rows += [
        [
            "evaluation",
            f"{entry['split']} loss {number(entry['loss'])} at step {entry['step']}"
            + ("" if entry["complete"] else " (a subset)"),
        ]
        for entry in session.evaluations
    ]
    return [
        *rows,
        ["checkpoints", str(session.checkpoints)],
        ["training only", _rate(session.training_tokens_per_second, session.training_seconds)],
        ["wall clock", _rate(session.wall_clock_tokens_per_second, session.elapsed_seconds)],
        ["data wait", seconds(session.data_seconds)],
    ]


def _rate(rate: float | None, spent: float) -> str:
    return "-" if rate is None else f"{rate:,.0f} tokens/s over {seconds(spent)}"


def _earlier_row(session: SessionSummary) -> list[str]:
    return [
        str(session.session),
        session.start,
        f"step {session.first.step} to {session.last.step}",
        session.status,
        f"{number(session.tokens)} tokens",
        seconds(session.elapsed_seconds),
    ]
