"""`ledger explain RULE`: what a rule means, how a finding comes about, what to do."""

from __future__ import annotations

from dataclasses import asdict
from difflib import get_close_matches
from typing import Annotated

import typer

from ledger.audit.rules import EXPLAINED
from ledger.cli.options import AsJson
from ledger.cli.output import print_json, print_lines
from ledger.errors import UsageError
from ledger.report.lines import Line, table

__all__ = ["command"]


def command(
    rule: Annotated[
        str | None, typer.Argument(metavar="RULE", help="A rule's id; all are listed without.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Say what a rule means and what to do about a finding of it; without a rule, list them all."""
    if rule is None:
        _list_rules(as_json=as_json)
        return
    found = EXPLAINED.get(rule.upper())
    if found is None:
        raise UsageError(f"there is no rule {rule!r} to explain", advice=_advice(rule.upper()))
    if as_json:
        print_json(asdict(found))
    else:
        print_lines(Line(text) for text in found.page.rstrip().split("\n"))


def _list_rules(*, as_json: bool) -> None:
    if as_json:
        print_json({rule.id: asdict(rule) for rule in EXPLAINED.values()})
        return
    print_lines(
        table([[rule.id, rule.title, ", ".join(rule.severities)] for rule in EXPLAINED.values()], indent="")
    )


def _advice(rule: str) -> str:
    near = get_close_matches(rule, EXPLAINED, n=1)
    return f"did you mean {near[0]}?" if near else "`ledger explain` lists them all"
