"""`ledger pilot`: rehearse a long run and say, in a table, what was asked and what was measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from ledger.cli.output import EXIT_CODES, print_lines, print_record, print_table
from ledger.cli.screen import harmless
from ledger.pilot import Moment, Plan, StageOutcome, last_logged_step, planned_steps, run_pilot
from ledger.pilot.budget import DEFAULT_PREEMPTIONS_PER_DAY
from ledger.pilot.explain import Explanation, explain_pilot
from ledger.pilot.kinds import STAGES
from ledger.pilot.recheck import PILOT_RECORD
from ledger.pilot.rehearsal import pilot_budget
from ledger.records.locks import Budget
from ledger.records.pilot import Gate, PilotRecord
from ledger.report.decision import decision_lines
from ledger.report.lines import Line
from ledger.report.outputs import (
    PilotChange,
    PilotExplainOutput,
    PilotOutput,
    PilotStageOutput,
    StageExplanation,
)
from ledger.storage.documents import read_document
from ledger.storage.filesystem import OS

__all__ = ["command"]

DEFAULT_CONFIGS: Final = [Path("configs/tiny.yaml"), Path("configs/pilots/tiny.yaml")]
"""The rehearsal of the embedded corpus."""

QUIET_SECONDS: Final = 10.0
"""How long nothing is said where no bar moves."""


def command(
    config: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="CONFIG…",
            help="The long run's configuration with a section `pilot`; several are merged, later ones override. "
            "When omitted, the rehearsal of the embedded corpus.",
        ),
    ] = None,
    *,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A dotted key; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="Folder of the pilot; pilots/NAME when omitted."),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Say of each stage whether it is there and why it would run; run nothing."
        ),
    ] = False,
    rehash: Annotated[
        bool, typer.Option("--rehash", help="Read every byte of what is there, changed or not.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Rehearse a long run: prepare, smoke, overfit, acceptance, stability, resume, validate.

    What was built before with the same settings is reused; what was interrupted goes on. Exits with 0 where it is GO,
    1 where a gate was missed, 3 where everything passed that was asked for and that is only a part of a pilot.
    """
    files = config or DEFAULT_CONFIGS
    with _Bars() as bars:
        plan = Plan(files, overrides or (), root=output, report=bars.report)
        bars.expect(len(plan.names))
        if explain:
            explanations = explain_pilot(plan)
        else:
            outcomes: list[StageOutcome] = []
            for stage in run_pilot(plan, is_rehashing=rehash):
                outcomes.append(stage)
                bars.finished(stage)
    if explain:
        _print_explanations(explanations, as_json=as_json)
        return
    outcome = _output(outcomes, plan=plan)
    if as_json:
        print_record(outcome)
    else:
        _print_table(outcome, plan=plan)
    raise typer.Exit(EXIT_CODES[outcome.verdict])


class _Bars:
    """Two bars on a terminal, stages and the steps of the running one; single lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._stages = self._progress.add_task("stages", total=None)
        self._steps: TaskID | None = None
        self._current: tuple[str, ...] = ()
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def expect(self, stages: int) -> None:
        """Say how many stages there are."""
        self._progress.update(self._stages, total=stages)

    def report(self, moment: Moment) -> None:
        """Show what goes on, and how far the run of a stage is."""
        run = "" if moment.run_dir is None or moment.run_dir.name == "run" else f" {moment.run_dir.name}"
        current = (moment.stage, run, moment.phase, moment.note)
        if self._current != current:
            self._begin(
                f"{moment.stage}{run}: {moment.phase}", moment.note, is_new=self._current[:2] != current[:2]
            )
            self._current = current
        if moment.run_dir is None:
            return
        step, total = last_logged_step(moment.run_dir), planned_steps(moment.run_dir)
        if self._steps is not None:
            self._progress.update(self._steps, completed=step, total=total)
        elif time.monotonic() - self._said >= QUIET_SECONDS:
            self._said = time.monotonic()
            self._console.print(f"{moment.stage}{run}: step {step}/{total or '?'}")

    def _begin(self, description: str, note: str, *, is_new: bool) -> None:
        if not self._console.is_terminal or note:
            text = harmless(f"{description}{f' ({note})' if note else ''} …")
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)
        if not self._console.is_terminal:
            return
        if self._steps is not None and not is_new:
            self._progress.update(self._steps, description=description)
            return
        if self._steps is not None:
            self._progress.remove_task(self._steps)
        self._steps = self._progress.add_task(description, total=None)

    def finished(self, outcome: StageOutcome) -> None:
        """Count a stage as done."""
        self._progress.advance(self._stages)
        how = "there already" if outcome.reused else "done"
        self._console.print(f"{outcome.stage}: {how}, {'passed' if outcome.passed else 'FAILED'}")


def _output(outcomes: list[StageOutcome], *, plan: Plan) -> PilotOutput:
    left_out = [name for name in STAGES if name not in plan.names]
    failed = not all(outcome.passed for outcome in outcomes)
    return PilotOutput(
        verdict="failed" if failed else "incomplete" if left_out else "passed",
        left_out=left_out,
        not_run=list(plan.names[len(outcomes) :]),
        stages=[
            PilotStageOutput(
                stage=outcome.stage,
                folder=str(outcome.folder),
                passed=outcome.passed,
                reused=outcome.reused,
                gates=outcome.gates,
                notes=outcome.notes,
            )
            for outcome in outcomes
        ],
    )


def _print_table(outcome: PilotOutput, *, plan: Plan) -> None:
    table = Table("stage", "what", "asked", "measured", "verdict", title=None)
    for stage in outcome.stages:
        for index, gate in enumerate(stage.gates):
            table.add_row(stage.stage if index == 0 else "", *_gate_cells(gate))
    for name in outcome.not_run:
        table.add_row(name, "", "", "", "not run")
    for name in outcome.left_out:
        table.add_row(name, "", "", "", "left out")
    print_table(table)
    print_lines(Line(note) for stage in outcome.stages for note in stage.notes)
    print_lines([Line(f"the records are in {plan.root}")])
    print_lines(decision_lines(outcome.verdict, _budget(plan.root), advice=_advice(outcome, root=plan.root)))


def _advice(outcome: PilotOutput, *, root: Path) -> str:
    page = f"see it as a page: ledger report {root}"
    if outcome.verdict == "failed":
        kept = f"what failed stays as evidence in {outcome.stages[-1].folder}"
        return f"{kept}; a changed recipe is another stage beside it; {page}"
    if outcome.verdict == "incomplete":
        return (
            f"what was asked for passed, and that is a part: pilot.stages leaves out {', '.join(outcome.left_out)}; "
            "without pilot.stages they are run, and what is there is reused"
        )
    return f"next: ledger freeze {root} -o recipe.lock.json; {page}"


def _budget(root: Path) -> Budget | None:
    if not OS.exists(root / PILOT_RECORD):
        return None
    record = read_document(root / PILOT_RECORD, PilotRecord)
    return pilot_budget(root, record, per_day=DEFAULT_PREEMPTIONS_PER_DAY)


def _gate_cells(gate: Gate) -> tuple[str, str, str, str]:
    verdict = "passed" if gate.passed else "FAILED"
    window = "" if gate.window is None else f", {gate.window.replace('_', ' ')}"
    what = f"{gate.metric.replace('_', ' ')}{window}"
    return what, harmless(gate.asked), harmless(_shown(gate.measured)), verdict if gate.gated else "not gated"


def _shown(measured: float | str | None) -> str:
    if measured is None:
        return "not measured"
    if isinstance(measured, str):
        return measured
    return f"{measured:,.0f}" if float(measured).is_integer() else f"{measured:.4g}"


def _print_explanations(explanations: list[Explanation], *, as_json: bool) -> None:
    if as_json:
        print_record(PilotExplainOutput(stages=[_explained(found) for found in explanations]))
        return
    print_lines(Line(line) for explanation in explanations for line in explanation.lines())


def _explained(found: Explanation) -> StageExplanation:
    changes = [PilotChange(input=one.name, before=one.before, after=one.after) for one in found.changes]
    return StageExplanation(
        stage=found.stage,
        standing=found.standing,
        folder=found.folder,
        nearest=found.nearest,
        changes=changes,
    )
