"""A run or a pilot in Markdown, short, for an issue or a pull request.

What the records chose stands in code spans, where it can link to nothing, mention nobody and break out of nothing;
tables hold numbers and our own words alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from ledger.audit.charts import Measured, RunCharts
from ledger.audit.rules import RULES
from ledger.records.documents import Finding, Verdict
from ledger.records.locks import Budget
from ledger.records.pilot import Gate
from ledger.report.budget import against_budget, budget_rows
from ledger.report.decision import NOT_SHOWN, WORDS, gate_standing
from ledger.report.harmless import code_span
from ledger.report.lines import number, seconds
from ledger.report.pilot_page import PilotReport, StageReport
from ledger.report.run_page import account_rows, counted, spent_of, unlogged

__all__ = ["pilot_markdown", "run_markdown"]

SHOWN: Final = 10
"""Findings, and sessions at the end, that are listed."""


def run_markdown(charts: RunCharts, *, name: str, budget: Budget | None = None) -> str:
    """Return the report of a run; `budget` is that of the lock that it was started under."""
    verdict, facts = charts.verdict, charts.facts
    called = (facts.name if facts else None) or verdict.run_id or name
    parts = [f"## Run {code_span(called)}: {verdict.verdict}", "", *_verdict_lines(verdict), ""]
    rows = account_rows(verdict)
    if rows:
        parts += [*_table(["", "on the branch", "superseded", "spent"], rows), "", unlogged(verdict), ""]
    parts += [*_session_lines(verdict), *_measured_lines(charts)]
    if budget is not None and verdict.spent is not None:
        head = ["budget, so far", "projected", "real"]
        parts += ["", *_table(head, against_budget(budget, spent_of(charts)))]
    parts += ["", *_finding_lines(verdict)]
    return _text(parts, tool_version=verdict.tool_version)


def pilot_markdown(pilot: PilotReport) -> str:
    """Return the report of a pilot: its gates, then each of its runs in a line."""
    parts = [f"## Pilot {code_span(pilot.name)}: {pilot.verdict}", "", f"**{WORDS[pilot.verdict]}.**", ""]
    parts += [f"- {name}: {code_span(value)}" for name, value in pilot.facts]
    parts += ["", *_against(pilot), *_budget_lines(pilot)]
    parts += ["", "What this does not show:", "", *(f"- {text}" for text in NOT_SHOWN), ""]
    for stage in pilot.stages:
        parts += [f"### {code_span(stage.name)}: {stage.standing}", "", *_stage_lines(stage), ""]
    return _text(parts, tool_version=pilot.tool_version)


def _against(pilot: PilotReport) -> Iterator[str]:
    for miss in pilot.misses:
        think = f"<br>Think of {miss.advice}." if miss.advice else ""
        yield f"- **MISSED** {code_span(str(miss))}{think}"
    yield from (f"- {code_span(name)} was not run" for name in pilot.missing)
    yield from (f"- {code_span(name)} is left out of pilot.stages" for name in pilot.left_out)
    for stage in pilot.stages:
        yield from (f"- {code_span(warning)}" for warning in stage.warnings)


def _budget_lines(pilot: PilotReport) -> Iterator[str]:
    if pilot.budget is not None:
        yield ""
        yield from _table(["budget", "projected"], budget_rows(pilot.budget))


def _text(parts: Iterable[str], *, tool_version: str) -> str:
    text = "\n".join(parts).rstrip()
    return f"{text}\n\n<sub>ledger {tool_version}, from records alone</sub>\n"


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    yield f"**{verdict.verdict.upper()}**, status {verdict.status}. Findings: {counted(verdict)}."
    if verdict.log_head is not None:
        yield ""
        yield f"Run `{verdict.run_id}`, log head `{verdict.log_head.seq}:{verdict.log_head.chain}`."


def _session_lines(verdict: Verdict) -> Iterator[str]:
    sessions: list[dict[str, Any]] = verdict.account.get("sessions") or []
    if len(sessions) > SHOWN:
        yield f"The last {SHOWN} of {number(len(sessions))} sessions:"
        yield ""
    rows = [
        [
            str(session["session"]),
            session["start"],
            f"{number(session['first_step'])} to {number(session['last_step'])}",
            session["status"],
            _kept(session),
            seconds(session["elapsed_seconds"]),
        ]
        for session in sessions[-SHOWN:]
    ]
    if rows:
        yield from _table(["session", "start", "step", "ended", "on the branch", "time"], rows)
        yield ""


def _kept(session: dict[str, Any]) -> str:
    kept = session["on_branch_up_to_step"]
    return "superseded" if kept is None else f"up to step {number(kept)}"


def _measured_lines(charts: RunCharts) -> Iterator[str]:
    """Yield a table of what was measured on the branch, in our own words, and the evaluations below it."""
    rows = [
        [name, *_first_last_least_greatest(measured)]
        for name, measured in (("loss", charts.loss), ("gradient norm", charts.grad_norm))
    ]
    yield from _table(["on the branch", "first", "last", "least", "greatest", "not finite"], rows)
    yield ""
    training, wall = charts.training_tokens_per_second, charts.wall_tokens_per_second
    yield f"Throughput: {_rate(training)} tokens/s training only, {_rate(wall)} wall clock."
    for measured in charts.evaluations:
        if branch := measured.branch:
            least = min(branch, key=lambda point: point.value)
            last = branch[-1]
            yield (
                f"Evaluation {code_span(measured.name)}: {number(last.value)} at step {number(last.step)}, "
                f"lowest {number(least.value)} at step {number(least.step)}."
            )


def _first_last_least_greatest(measured: Measured) -> list[str]:
    values = [point.value for point in measured.branch]
    lost = number(measured.nonfinite_count)
    if not values:
        return ["-", "-", "-", "-", lost]
    return [*(number(value) for value in (values[0], values[-1], min(values), max(values))), lost]


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _finding_lines(verdict: Verdict) -> Iterator[str]:
    shown = verdict.findings[:SHOWN]
    for found in shown:
        yield from _finding(found)
    more = sum(verdict.finding_counts.values()) + verdict.waived - len(shown)
    if more > 0:
        yield f"- and {number(more)} more"


def _finding(found: Finding) -> Iterator[str]:
    rule = RULES.get(found.rule)
    waived = "" if found.waiver is None else f" (waived by {code_span(found.waiver.name)})"
    title = "" if rule is None else f", {rule.title}"
    yield f"- **{found.severity}** {found.rule}{title}{waived}: {code_span(found.where)}<br>{code_span(found.message)}"


def _stage_lines(stage: StageReport) -> Iterator[str]:
    if stage.problem is not None:
        yield code_span(stage.problem)
    for gate in stage.gates:
        yield _gate(gate)
    for run in stage.runs:
        if run.charts is None:
            yield f"- run {code_span(run.path)}: {code_span(run.problem or 'unreadable')}"
            continue
        last = run.charts.loss.branch[-1:]
        loss = f", last loss {number(last[0].value)}" if last else ""
        problem = "" if run.problem is None else f"; {run.problem}"
        yield f"- run {code_span(run.path)}: {run.charts.verdict.verdict}{loss}{problem}"


def _gate(gate: Gate) -> str:
    measured = "not measured" if gate.measured is None else code_span(number(gate.measured))
    standing = gate_standing(gate)
    word = "**MISSED**" if standing == "MISSED" else standing
    window = f" ({gate.window.replace('_', ' ')})" if gate.window else ""
    return f"- {word} {code_span(gate.metric)}{window}: asked {code_span(gate.asked)}, measured {measured}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(row) + " |"
