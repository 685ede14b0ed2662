"""`ledger summarize RUN`: what the latest session did."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledger.audit import summarize
from ledger.cli.options import AsJson, RunPath, whole_number
from ledger.cli.output import EXIT_CODES, print_lines, print_record, screen, warn_about_link
from ledger.locks import budget_of_run
from ledger.report.summary import summary_lines

__all__ = ["command"]


def command(
    run: RunPath,
    *,
    require_end: Annotated[
        int | None,
        typer.Option(
            "--require-end",
            metavar="STEP",
            parser=whole_number,
            help="Fail unless the latest session ended at this step.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what the latest session did, the earlier ones apart. Checks the log's form and counters (LG1, LG2)."""
    summary = summarize(run, require_end=require_end)
    warn_about_link(Path(run))
    if as_json:
        print_record(summary)
    else:
        print_lines(summary_lines(summary, screen=screen(), budget=budget_of_run(Path(run))))
    raise typer.Exit(EXIT_CODES[summary.verdict])
