"""A pilot as a page: its stages, what each was asked and what was measured, and its runs in short."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ledger.audit.charts import RunCharts
from ledger.records.pilot import Gate
from ledger.report.lines import number
from ledger.report.markup import Markup, element, table_of
from ledger.report.page import page, verdict_word
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


@dataclass(frozen=True, kw_only=True)
class PilotReport:
    """A pilot's stages in their order."""

    name: str
    stages: list[StageReport]
    tool_version: str

    @property
    def verdict(self) -> Literal["passed", "failed", "incomplete"]:
        """Passed if every stage is, and every run of it still; a stage that is not finished leaves it open."""
        standings = {stage.standing for stage in self.stages}
        of_runs = {run.verdict for stage in self.stages for run in stage.runs if stage.standing == "passed"}
        if standings & {"failed", "unreadable"} or "failed" in of_runs:
            return "failed"
        return "passed" if standings == {"passed"} and of_runs <= {"passed"} else "incomplete"


def pilot_page(pilot: PilotReport) -> str:
    """Return the report of a pilot."""
    rows = [
        [stage.name, stage.standing, f"{sum(gate.passed for gate in stage.gates)} of {len(stage.gates)}"]
        for stage in pilot.stages
    ]
    head = element(
        "header",
        element("h1", "Pilot ", pilot.name),
        element("p", verdict_word(pilot.verdict)),
        table_of(["stage", "standing", "gates kept"], rows, caption="Stages"),
        element("p", _SHOWN, class_="soft"),
    )
    title = f"Pilot {pilot.name}: {pilot.verdict}"
    return page(title, head, *(_stage(stage) for stage in pilot.stages), tool_version=pilot.tool_version)


_SHOWN: Final = (
    "A gate is judged from records alone. A passed pilot shows that this recipe ran as asked, for as long as the pilot "
    "did; it does not show how a longer run will end."
)


def _stage(stage: StageReport) -> Markup:
    parts = [element("h2", stage.name, ": ", stage.standing)]
    if stage.problem is not None:
        parts.append(element("p", stage.problem))
    if stage.gates:
        rows = [_gate_row(gate) for gate in stage.gates]
        head = ["gate", "asked", "measured", "verdict"]
        parts.append(table_of(head, rows, caption=f"Gates of {stage.name}"))
    return element("section", *parts, *(_run(run) for run in stage.runs))


def _gate_row(gate: Gate) -> list[str]:
    measured = "not measured" if gate.measured is None else number(gate.measured)
    verdict = (
        element("span", "passed", class_="passed") if gate.passed else element("b", "MISSED", class_="failed")
    )
    return [gate.metric.replace("_", " "), gate.asked, measured, verdict]


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
