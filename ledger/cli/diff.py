"""`ledger diff A B`: two runs side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from ledger.audit import compare_runs
from ledger.cli.options import AsJson
from ledger.cli.output import print_lines, print_record
from ledger.report.comparison import comparison_lines

__all__ = ["command"]


def command(
    first: Annotated[str, typer.Argument(metavar="A", help="A run's folder.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another run's folder.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Compare two runs: recipes, identity differences first, then data, results and environments."""
    comparison = compare_runs(first, second)
    if as_json:
        print_record(comparison)
    else:
        print_lines(comparison_lines(comparison))
