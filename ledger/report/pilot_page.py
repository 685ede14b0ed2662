"""A pilot as a page: its stages, what each was asked and what was measured, and its runs in short."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from ledger.audit.charts import RunCharts
from ledger.records.locks import Budget
from ledger.records.pilot import Gate
from ledger.report.budget import budget_rows
from ledger.report.decision import NOT_SHOWN, WORDS, Miss, gate_standing, gate_words, misses_of
from ledger.report.lines import number
from ledger.report.markup import Markup, element, joined, table_of, text
from ledger.report.page import facts_list, page, verdict_word
from ledger.report.run_charts import loss_chart, norm_chart
from ledger.report.run_page import counted, findings_list

__all__ = ["PILOT_BUCKETS", "PilotReport", "RunInStage", "StageReport", "pilot_page"]

PILOT_BUCKETS: Final = 120
"""Buckets of each curve: a pilot has many runs, and each is shown in short."""
SHOWN_FINDINGS: Final = 5
Standing = Literal["passed", "failed", "not finished", "unreadable"]


@dataclass(frozen=True, kw_only=True)
class RunInStage:
    """A run that a stage made."""

    path: str
    charts: RunCharts | None
    problem: str | None = None
    """Why there are no curves, or what else is wrong with it."""

    @property
    def verdict(self) -> str:
        """What its records amount to now; failed where it is no longer what the stage rests on."""
        return "failed" if self.charts is None or self.problem else self.charts.verdict.verdict


@dataclass(frozen=True, kw_only=True)
class StageReport:
    """One stage as its record tells it."""

    name: str
    standing: Standing
    gates: list[Gate]
    runs: list[RunInStage]
    problem: str | None = None
    """Why there is no record, or why it cannot be read."""
    advice: dict[str, str] = field(default_factory=dict)
    """Metric to what to think of where it misses its bound."""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class PilotReport:
    """A pilot's stages in their order."""

    name: str
    stages: list[StageReport]
    tool_version: str
    facts: list[tuple[str, str]] = field(default_factory=list)
    """What is rehearsed."""
    budget: Budget | None = None
    not_run: list[str] = field(default_factory=list)
    """Stages that have no folder, or no record, yet."""
    left_out: list[str] = field(default_factory=list)
    """Stages that the configuration does not ask for."""

    @property
    def misses(self) -> list[Miss]:
        """Every gate that misses its bound."""
        return [miss for stage in self.stages for miss in misses_of(stage.name, stage.gates, stage.advice)]

    @property
    def missing(self) -> list[str]:
        """Stages that did not even begin."""
        return [
            name
            for name in self.not_run
            if name not in {stage.name.partition("-")[0] for stage in self.stages}
        ]

    @property
    def verdict(self) -> Literal["passed", "failed", "incomplete"]:
        """Passed if every stage is, and every run of it still; one that is not finished or left out leaves it open."""
        standings = {stage.standing for stage in self.stages}
        of_runs = {run.verdict for stage in self.stages for run in stage.runs if stage.standing == "passed"}
        if standings & {"failed", "unreadable"} or "failed" in of_runs:
            return "failed"
        is_whole = (
            standings == {"passed"} and of_runs <= {"passed"} and not self.not_run and not self.left_out
        )
        return "passed" if is_whole else "incomplete"


def pilot_page(pilot: PilotReport) -> str:
    """Return the report of a pilot: what was decided and why first, then stage by stage."""
    head = element(
        "header",
        element("h1", "Pilot ", pilot.name),
        element("p", verdict_word(pilot.verdict)),
        element("p", WORDS[pilot.verdict], "."),
        *([facts_list([(name, text(value)) for name, value in pilot.facts])] if pilot.facts else []),
    )
    title = f"Pilot {pilot.name}: {pilot.verdict}"
    parts = [
        head,
        *_misses(pilot),
        _asked(pilot),
        *_budget(pilot.budget),
        _not_shown(),
        *(_stage(stage) for stage in pilot.stages),
    ]
    return page(title, *parts, tool_version=pilot.tool_version)


def _misses(pilot: PilotReport) -> list[Markup]:
    """Return what failed with its reason, what is not finished, and what was not measured."""
    items = [
        _item(str(miss), f"Think of {miss.advice}." if miss.advice else "", kind="error")
        for miss in pilot.misses
    ]
    for stage in pilot.stages:
        if stage.standing not in ("passed", "failed"):
            items.append(_item(f"{stage.name} is {stage.standing}", stage.problem or "", kind="missing"))
        elif stage.standing == "passed":
            items += [
                _item(f"{stage.name}, run {run.path}: {run.verdict} now", run.problem or "", kind="error")
                for run in stage.runs
                if run.verdict != "passed"
            ]
    items += [_item(f"{name} was not run", "", kind="missing") for name in pilot.missing]
    items += [_item(f"{name} is left out of pilot.stages", "", kind="missing") for name in pilot.left_out]
    warnings = [note for stage in pilot.stages for note in stage.warnings]
    items += [_item(note, "", kind="warning") for note in warnings]
    if not items:
        return []
    return [
        element("section", element("h2", "What speaks against it"), element("ul", *items, class_="findings"))
    ]


def _item(title: str, words: str, *, kind: str) -> Markup:
    return element("li", element("b", title), *([element("p", words)] if words else []), class_=kind)


def _asked(pilot: PilotReport) -> Markup:
    rows = [
        [
            stage.name,
            element("span", stage.standing, class_=_CLASSES[stage.standing]),
            f"{sum(gate.gated and gate.passed for gate in stage.gates)} of {sum(gate.gated for gate in stage.gates)}",
            number(sum(gate.measured is None for gate in stage.gates)),
            number(sum(not gate.gated for gate in stage.gates)),
        ]
        for stage in pilot.stages
    ]
    head = ["stage", "standing", "gates kept", "not measured", "not gated"]
    return element(
        "section", element("h2", "What was asked"), table_of(head, rows, caption="Stages, in their order")
    )


def _budget(budget: Budget | None) -> list[Markup]:
    if budget is None:
        return []
    rows = table_of(
        ["", "projected"], budget_rows(budget), caption="If the long run behaves as the pilot did"
    )
    assumed = element("ul", *(element("li", one) for one in budget.assumptions))
    return [
        element("section", element("h2", "Budget of the long run"), rows, element("p", "Assumed:"), assumed)
    ]


def _not_shown() -> Markup:
    items = element("ul", *(element("li", one) for one in NOT_SHOWN))
    return element("section", element("h2", "What this does not show"), items)


_CLASSES: Final[dict[Standing, str]] = {
    "passed": "passed",
    "failed": "failed",
    "not finished": "incomplete",
    "unreadable": "failed",
}


def _stage(stage: StageReport) -> Markup:
    parts = [element("h2", stage.name, ": ", stage.standing)]
    if stage.problem is not None:
        parts.append(element("p", stage.problem))
    if stage.gates:
        rows = [_gate_row(gate) for gate in stage.gates]
        head = ["gate, and why it is asked", "asked", "measured", "verdict"]
        parts.append(table_of(head, rows, caption=f"Gates of {stage.name}"))
    return element("section", *parts, *(_run(run) for run in stage.runs))


def _gate_row(gate: Gate) -> list[str]:
    measured = "not measured" if gate.measured is None else number(gate.measured)
    standing = gate_standing(gate)
    name, kind = ("b", "failed") if standing == "MISSED" else ("span", standing)
    verdict = element(name, standing, class_=kind if gate.gated else "soft")
    why = [element("span", gate.reason, class_="why")] if gate.reason else []
    return [joined([gate_words(gate), *why]), gate.asked, measured, verdict]


def _run(run: RunInStage) -> Markup:
    heading = element("h3", "Run ", run.path)
    if run.charts is None:
        return element("section", heading, element("p", run.problem or "It cannot be read."))
    verdict = run.charts.verdict
    totals = ""
    if verdict.branch is not None:
        totals = (
            f" {number(verdict.branch.step)} updates, {number(verdict.branch.skipped)} skipped, "
            f"{number(verdict.branch.tokens_seen)} tokens on the branch."
        )
    problem = [] if run.problem is None else [element("p", run.problem, class_="failed")]
    return element(
        "section",
        heading,
        *problem,
        element("p", f"{verdict.verdict.upper()}: {counted(verdict)}.{totals}"),
        findings_list(verdict, most=SHOWN_FINDINGS),
        loss_chart(run.charts, level=4).render(),
        norm_chart(run.charts, level=4).render(),
    )
