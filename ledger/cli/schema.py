"""`ledger schema [NAME]`: JSON Schemas of documents and events."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from ledger.cli.options import AsJson
from ledger.cli.output import print_json, print_lines
from ledger.errors import UsageError
from ledger.report.lines import Line
from ledger.report.schemas import schema_of, schemas

__all__ = ["command"]


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="ledger.run, event.train, …; all are listed without.")
    ] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of a document or of a line of the log; without a name, list the names."""
    names = schemas()
    if name is None:
        if as_json:
            print_json({known: schema_of(known) for known in names})
        else:
            print_lines(Line(known) for known in names)
        return
    found = schema_of(name)
    if found is None:
        near = get_close_matches(name, names, n=1)
        raise UsageError(
            f"there is no schema {name!r}",
            advice=f"did you mean {near[0]}?" if near else "`ledger schema` lists them",
        )
    print_json(found)
