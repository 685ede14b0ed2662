"""Arguments and options that several commands share."""

from __future__ import annotations

import re
from typing import Annotated

import typer

__all__ = ["AllowNetworkFs", "AsJson", "DataPath", "ExpectHead", "RunPath", "whole_number"]

# Text and not Path, which would take "" for the current folder.
RunPath = Annotated[str, typer.Argument(metavar="RUN", help="The run's folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
AllowNetworkFs = Annotated[
    bool,
    typer.Option(
        "--allow-network-fs", help="Write although this lies on a network file system (see `ledger doctor`)."
    ),
]
DataPath = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Where the dataset lies, if not where the recipe says."),
]
ExpectHead = Annotated[
    str | None,
    typer.Option(
        "--expect-head",
        metavar="LINES",
        help="What `ledger seal` printed, or a file that holds it: the log and the seal must still be those.",
    ),
]


def whole_number(text: str | int) -> int:
    """Return a whole number written in plain digits; `int` would also take `1_000` and full-width digits."""
    if isinstance(text, int):
        return text
    if not re.fullmatch(r"[0-9]{1,15}", text):
        raise typer.BadParameter(f"{text!r} is not a whole number")
    return int(text)
