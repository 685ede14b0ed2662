"""`ledger waive RUN RULE`: accept a finding, or take that back."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer
from pydantic import ValidationError

from ledger.audit.subject import find_run
from ledger.cli.options import AllowNetworkFs, RunPath
from ledger.errors import UsageError
from ledger.maintain import add_waiver, withdraw_waiver
from ledger.records.waivers import Waiver

__all__ = ["command"]


def command(
    run: RunPath,
    rule: Annotated[str, typer.Argument(metavar="RULE", help="The rule of the finding, such as LG306.")],
    *,
    where: Annotated[
        str,
        typer.Option("--where", metavar="PLACE", help="Its place, exactly as `ledger reconcile` prints it."),
    ],
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why it does not matter.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Who accepts it.")] = None,
    expires: Annotated[
        str | None,
        typer.Option("--expires", metavar="DATE", help="YYYY-MM-DD: the last day on which it holds."),
    ] = None,
    allow_network_fs: AllowNetworkFs = False,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Take the waiver back.")] = False,
) -> None:
    """Accept one finding of a run: it stays in every verdict, named as waived, and does not count until the end.

    What concerns integrity (LG1xx, LG402, LG503, LG705) cannot be waived.
    """
    folder = find_run(run)
    if withdraw:
        path = withdraw_waiver(folder, rule=rule, where=where, allow_network_fs=allow_network_fs)
    elif reason is None or name is None or expires is None:
        raise UsageError(
            "a waiver needs a reason, a name and an end", expected="--reason, --name and --expires"
        )
    else:
        path = add_waiver(
            folder, _waiver(rule, where, reason, name, expires), allow_network_fs=allow_network_fs
        )
    sys.stderr.write(f"wrote {ascii(str(path))[1:-1]}\n")


def _waiver(rule: str, where: str, reason: str, name: str, expires: str) -> Waiver:
    if not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])", expires):
        raise UsageError(f"--expires {expires} is no day", expected="YYYY-MM-DD")
    try:
        return Waiver(rule=rule, where=where, reason=reason, name=name, expires=f"{expires}T23:59:59.999999Z")
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"the waiver's {first['loc'][0]}: {first['msg']}") from error
