"""`ledger pilot`: rehearse a recipe and say, in a table, what was asked and what was measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Final, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from ledger.cli.output import print_json, print_table
from ledger.cli.screen import harmless
from ledger.config import load_config
from ledger.pilot import STAGES, PilotConfig, StageOutcome, last_logged_step, planned_steps, run_pilot
from ledger.records.pilot import Gate

__all__ = ["command"]

DEFAULT_CONFIG = Path("configs/pilot.yaml")


def command(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG", help="The pilot's configuration.")
    ] = DEFAULT_CONFIG,
    *,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A dotted key; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="DIR", help="Folder of the pilot; pilots/NAME when omitted."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Rehearse a recipe: prepare, overfit, acceptance, stability, resume. What exists is verified, not rebuilt."""
    pilot = load_config([config], overrides or (), model=PilotConfig)
    root = Path("pilots") / pilot.name if output is None else output
    outcomes: list[StageOutcome] = []
    with _Bars() as bars:
        for outcome in run_pilot(pilot, root=root, configs=config.parent, report=bars.report):
            outcomes.append(outcome)
            bars.finished(outcome)
    passed = len(outcomes) == len(STAGES) and all(outcome.passed for outcome in outcomes)
    if as_json:
        print_json(_as_json(outcomes, passed=passed))
    else:
        _print_table(outcomes, root=root, passed=passed)
    raise typer.Exit(0 if passed else 1)


QUIET_SECONDS: Final = 10.0
"""How long nothing is said where no bar moves."""


class _Bars:
    """Two bars on a terminal, stages and the steps of the running one; single lines elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._stages = self._progress.add_task("stages", total=len(STAGES))
        self._steps: TaskID | None = None
        self._current: tuple[str, Path | None] | None = None
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def report(self, stage: str, run_dir: Path | None) -> None:
        """Show how far the run of a stage is."""
        if self._current != (stage, run_dir):
            self._current = (stage, run_dir)
            self._begin(stage if run_dir is None or run_dir.name == "run" else f"{stage} {run_dir.name}")
        if self._steps is not None and run_dir is not None:
            step, total = last_logged_step(run_dir), planned_steps(run_dir)
            self._progress.update(self._steps, completed=step, total=total)
        elif run_dir is not None and time.monotonic() - self._said >= QUIET_SECONDS:
            self._said = time.monotonic()
            self._console.print(f"{stage}: step {last_logged_step(run_dir)}/{planned_steps(run_dir) or '?'}")

    def _begin(self, description: str) -> None:
        if not self._console.is_terminal:
            self._console.print(f"{description} …")
            return
        if self._steps is not None:
            self._progress.remove_task(self._steps)
        self._steps = self._progress.add_task(description, total=None)

    def finished(self, outcome: StageOutcome) -> None:
        """Count a stage as done."""
        self._progress.advance(self._stages)
        how = "verified" if outcome.reused else "done"
        self._console.print(f"{outcome.stage}: {how}, {'passed' if outcome.passed else 'FAILED'}")


def _print_table(outcomes: list[StageOutcome], *, root: Path, passed: bool) -> None:
    table = Table("stage", "what", "asked", "measured", "verdict", title=None)
    for outcome in outcomes:
        for index, gate in enumerate(outcome.gates):
            stage = outcome.stage if index == 0 else ""
            table.add_row(stage, *_gate_cells(gate))
    for name in STAGES[len(outcomes) :]:
        table.add_row(name, "", "", "", "not run")
    print_table(table)
    print(f"pilot {'passed' if passed else 'FAILED'}; its records are in {harmless(str(root))}")
    if not passed:
        failed = harmless(str(root / outcomes[-1].stage))
        print(f"what failed stays as evidence: change the recipe, remove {failed}, and run this again")


def _gate_cells(gate: Gate) -> tuple[str, str, str, str]:
    verdict = "passed" if gate.passed else "FAILED"
    return gate.metric.replace("_", " "), gate.asked, harmless(_shown(gate.measured)), verdict


def _shown(measured: float | str | None) -> str:
    if measured is None:
        return "not measured"
    if isinstance(measured, str):
        return measured
    return f"{measured:,.0f}" if float(measured).is_integer() else f"{measured:.4g}"


def _as_json(outcomes: list[StageOutcome], *, passed: bool) -> dict[str, object]:
    stages = [
        {
            "stage": outcome.stage,
            "passed": outcome.passed,
            "reused": outcome.reused,
            "gates": [gate.model_dump(mode="json") for gate in outcome.gates],
        }
        for outcome in outcomes
    ]
    return {"passed": passed, "stages": stages}
