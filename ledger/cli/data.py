"""`ledger data show DATASET`: what a prepared dataset holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledger.audit import reconcile
from ledger.cli.options import AsJson
from ledger.cli.output import print_json, print_lines, warn_about_link
from ledger.dataset.inventory import take_inventory
from ledger.dataset.manifest import open_dataset
from ledger.errors import RefusedError, UsageError
from ledger.report.inventory import Coverage, inventory_lines

__all__ = ["group"]

group = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)


@group.callback()
def _about() -> None:
    """Look at prepared datasets."""


@group.command("show")
def show(
    path: Annotated[str, typer.Argument(metavar="DATASET", help="A prepared dataset.")],
    *,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Also say what this run read of it.")
    ] = None,
    duplicates: Annotated[
        bool, typer.Option(help="Read every token to count documents that repeat an earlier one.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Print documents, tokens, tokens a document, bytes a token, duplicates and splits."""
    if not path:
        raise UsageError("an empty path is given", advice="name the dataset's folder")
    dataset = open_dataset(path)
    inventory = take_inventory(dataset, duplicates=duplicates)
    coverage = None if run is None else _coverage(run, path=path)
    warn_about_link(Path(path))
    if as_json:
        print_json(inventory.as_json() | {"coverage": coverage})
    else:
        print_lines(inventory_lines(inventory, title=f"dataset {path}", coverage=coverage))


def _coverage(run: str, *, path: str) -> Coverage:
    """Return what a run's records say it read of the dataset.

    Raises:
        RefusedError: the run read another dataset.
    """
    verdict = reconcile(run, data=path)
    other = next((finding for finding in verdict.findings if finding.rule == "LG501"), None)
    if other is not None:
        raise RefusedError(f"the run read another dataset: {other.message}", path=run, expected=path)
    found: Coverage = verdict.account.get("coverage") or {}
    return found
