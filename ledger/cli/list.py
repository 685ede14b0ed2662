"""`ledger list DIR`: the runs in a folder at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from ledger.audit import ListedRun, Listing, list_runs
from ledger.cli.options import AsJson
from ledger.cli.output import print_lines, print_record
from ledger.report.harmless import one_line
from ledger.report.lines import Line, heading, number, table

__all__ = ["command"]


def command(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A folder with runs in it.")] = ".",
    *,
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder and below it: how far each came and how it stands.

    Reads each log and checks its form alone; whether a run may be declared done is for `ledger reconcile` to say.
    Exits with 3 when there is no run, one whose log cannot be followed, or a folder that cannot be looked into.
    """
    listing = list_runs(folder)
    if as_json:
        print_record(listing)
    else:
        print_lines(_lines(listing, folder))
    is_whole = (
        bool(listing.runs) and not listing.unreadable and all(run.problem is None for run in listing.runs)
    )
    raise typer.Exit(0 if is_whole else 3)


def _lines(listing: Listing, folder: str) -> Iterator[Line]:
    if listing.runs:
        rows = [_row(run) for run in listing.runs]
        first, *others = table(
            [["run", "name", "purpose", "status", "step", "tokens", "sessions", "last event"], *rows]
        )
        yield heading(first.text)
        yield from others
    else:
        yield Line(f"there is no run in {folder}")
    for run in listing.runs:
        if run.problem is not None:
            yield Line(f"  {one_line(run.path)}: {run.problem}", "red")
    for path, problem in listing.unreadable.items():
        yield Line(f"  {one_line(path)}: could not be looked into: {problem}", "red")


def _row(run: ListedRun) -> list[str]:
    target = "" if run.target_step is None else f" of {number(run.target_step)}"
    skipped = f" ({number(run.skipped)} skipped)" if run.skipped else ""
    return [
        one_line(run.path),
        one_line(run.name or "-"),
        run.purpose or "-",
        run.status,
        f"{number(run.step)}{target}{skipped}",
        number(run.tokens_seen),
        str(run.sessions),
        "-" if run.last is None else f"{run.last[:19]}Z",
    ]
