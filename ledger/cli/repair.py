"""`ledger repair RUN`: put right what a crash left, or say why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from ledger.cli.options import AllowNetworkFs, AsJson, RunPath
from ledger.cli.output import print_json, print_lines, warn_about_link
from ledger.cli.screen import harmless
from ledger.errors import UsageError
from ledger.maintain import RepairReport, repair_run
from ledger.report.lines import Line, heading

__all__ = ["EXIT_CODES", "command"]

EXIT_CODES: Final = {"clean": 0, "repaired": 0, "refused": 1, "repairable": 3, "live": 3}
"""Outcome to exit code."""


def command(
    run: RunPath,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Do it; without, only say what would be done.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done, as without --apply.")
    ] = False,
    allow_network_fs: AllowNetworkFs = False,
    as_json: AsJson = False,
) -> None:
    """Repair what a crash left: a torn tail, a run.json behind the log, temporary files. Nothing else is touched.

    Without --apply nothing is written. Exits with 0 when there is nothing to repair or it was repaired, 1 when the
    run is damaged in a way that no repair undoes (then nothing is changed), 3 when there is something to repair or
    a writer holds the run, 5 when --apply finds the run locked.
    """
    if apply and dry_run:
        raise UsageError("--apply and --dry-run contradict each other", expected="one of them")
    report = repair_run(run, apply=apply, allow_network_fs=allow_network_fs)
    warn_about_link(Path(run))
    if as_json:
        print_json(asdict(report))
    else:
        print_lines(_lines(report))
    sys.stdout.flush()
    raise typer.Exit(EXIT_CODES[report.outcome])


def _lines(report: RepairReport) -> Iterator[Line]:
    yield heading(f"run {report.run_id or harmless(report.run)}: {_title(report)}")
    done = report.outcome == "repaired"
    for step in report.steps:
        yield Line(f"  {step.where}: {step.problem}")
        yield Line(f"    {step.remedy if done else 'would be ' + step.remedy}")
    for name in report.temporaries:
        yield Line(f"    {name}")
    if (more := report.temporary_count - len(report.temporaries)) > 0:
        yield Line(f"    and {more:,} more")
    if report.refusal is not None:
        yield Line(f"  {report.refusal}")
    if report.outcome == "repairable":
        yield Line("  nothing was changed; do it with: --apply")


def _title(report: RepairReport) -> str:
    return {
        "clean": "nothing to repair",
        "repairable": "this can be repaired",
        "repaired": "repaired",
        "refused": "damaged in a way that no repair undoes; nothing was changed",
        "live": f"a writer holds it, so nothing is left over yet: {report.holder}",
    }[report.outcome]
