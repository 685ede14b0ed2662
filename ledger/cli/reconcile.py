"""`ledger reconcile RUN`: every rule over all sessions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ledger.audit import reconcile
from ledger.audit.heads import parse_head
from ledger.audit.subject import is_dataset, is_run
from ledger.cli.options import AllowNetworkFs, AsJson, DataPath, ExpectHead, RunPath
from ledger.cli.output import (
    print_json,
    print_lines,
    print_record,
    print_text,
    screen,
    verdict_exit,
    warn_about_link,
)
from ledger.cli.progress import shown_bytes
from ledger.cli.screen import harmless
from ledger.errors import UsageError
from ledger.maintain import write_verdict
from ledger.report.ci import junit_xml, sarif_log
from ledger.report.verdict import verdict_lines

__all__ = ["command"]


def command(
    run: RunPath,
    *,
    control: Annotated[
        str | None,
        typer.Option(
            "--control", metavar="RUN", help="An uninterrupted run of the same recipe to compare with."
        ),
    ] = None,
    rehash: Annotated[
        bool, typer.Option("--rehash", help="Read every byte of checkpoints and dataset.")
    ] = False,
    write: Annotated[bool, typer.Option("--write", help="Write verdict.json into the run.")] = False,
    data: DataPath = None,
    expect_head: ExpectHead = None,
    allow_network_fs: AllowNetworkFs = False,
    as_json: AsJson = False,
    as_junit: Annotated[
        bool, typer.Option("--junit", help="Print the verdict as JUnit XML, one test a rule.")
    ] = False,
    as_sarif: Annotated[
        bool, typer.Option("--sarif", help="Print the verdict as SARIF 2.1.0, one result a finding.")
    ] = False,
) -> None:
    """Check every rule over all sessions and say what may be claimed: passed, failed or incomplete."""
    _refuse_dataset(run)
    if as_json + as_junit + as_sarif > 1:
        raise UsageError("--json, --junit and --sarif exclude each other", expected="one of them")
    quoted = None if expect_head is None else parse_head(expect_head)
    with shown_bytes("hashed") as progress:
        verdict = reconcile(run, control=control, rehash=rehash, data=data, quoted=quoted, progress=progress)
    warn_about_link(Path(run))
    if write:
        written = write_verdict(run, verdict, allow_network_fs=allow_network_fs)
        sys.stderr.write(f"wrote {ascii(str(written))[1:-1]}\n")
    if as_json:
        print_record(verdict)
    elif as_junit:
        print_text(junit_xml(verdict, run=run))
    elif as_sarif:
        print_json(sarif_log(verdict, run=run))
    else:
        print_lines(verdict_lines(verdict, title=f"run {verdict.run_id or harmless(run)}", screen=screen()))
    raise verdict_exit(verdict)


def _refuse_dataset(path: str) -> None:
    folder = Path(path)
    if path and is_dataset(folder) and not is_run(folder):
        raise UsageError(
            "is a dataset",
            path=folder,
            expected="a run",
            advice=f"rehash a dataset with: ledger verify {path}",
        )
