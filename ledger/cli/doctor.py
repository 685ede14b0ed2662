"""`ledger doctor [DIR]`: whether runs may be written to a folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import typer

from ledger.cli.options import AllowNetworkFs, AsJson
from ledger.cli.output import print_json, print_lines
from ledger.cli.screen import harmless
from ledger.maintain import Diagnosis, diagnose
from ledger.records.fields import Json
from ledger.report.lines import Line, heading, table

__all__ = ["command"]

UNSAFE: Final = 7
"""The exit code of a folder that runs must not be written to."""

_STYLES: Final = {"ok": "", "warning": "yellow", "failed": "red"}


def command(
    folder: Annotated[
        str, typer.Argument(metavar="DIR", help="A folder in which runs lie or will lie.")
    ] = ".",
    *,
    allow_network_fs: AllowNetworkFs = False,
    as_json: AsJson = False,
) -> None:
    """Say what is safe in a folder: try syncs, renames, links, locks and appends in a temporary folder there.

    Exits with 0 when runs are safe there (also with warnings), 4 when nothing can be written there, 7 when they are
    not safe there.
    """
    diagnosis = diagnose(folder, allow_network_fs=allow_network_fs)
    if as_json:
        print_json(_as_json(diagnosis))
    else:
        print_lines(_lines(diagnosis))
    raise typer.Exit(UNSAFE if diagnosis.verdict == "unsafe" else 0)


def _lines(diagnosis: Diagnosis) -> Iterator[Line]:
    yield heading(f"{harmless(diagnosis.folder)}: {diagnosis.verdict} for runs")
    rows = [[check.status, check.name, check.detail] for check in diagnosis.checks]
    for check, line in zip(diagnosis.checks, table(rows), strict=True):
        yield Line(line.text, _STYLES[check.status])


def _as_json(diagnosis: Diagnosis) -> Json:
    mount = diagnosis.mount
    return {
        "folder": diagnosis.folder,
        "file_system": None if mount is None else mount._asdict(),
        "class": diagnosis.file_system_class,
        "checks": [
            {"name": check.name, "status": check.status, "detail": check.detail} for check in diagnosis.checks
        ],
        "verdict": diagnosis.verdict,
    }
