"""`ledger data show DATASET`: what a prepared dataset holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ledger.audit import reconcile
from ledger.cli.options import AsJson
from ledger.cli.output import print_json, print_lines, warn_about_link
from ledger.dataset.inventory import take_inventory
from ledger.dataset.manifest import Dataset, open_dataset
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
    coverage = None if run is None else _coverage(run, dataset=dataset)
    warn_about_link(Path(path))
    if as_json:
        print_json(inventory.as_json() | {"coverage": coverage})
    else:
        print_lines(inventory_lines(inventory, title=f"dataset {path}", coverage=coverage))


def _coverage(run: str, *, dataset: Dataset) -> Coverage:
    """Return what a run's records say it read of the dataset.

    Raises:
        RefusedError: the run read another dataset, or a mix without it.
    """
    path = dataset.directory
    verdict = reconcile(run, data=path)
    mix: Mapping[str, str | None] = verdict.account.get("mix") or {}
    if mix:
        verdict = reconcile(run)  # its sources lie where the recipe says
        names = [name for name, identity in mix.items() if identity == dataset.metadata_sha256]
        if not names:
            problem = f"the run read a mix of other datasets: {', '.join(mix)}"
            raise RefusedError(problem, path=run, expected=str(path))
        read: Coverage = verdict.account.get("coverage") or {}
        return {name: read[name] for name in names if name in read}
    other = next((finding for finding in verdict.findings if finding.rule == "LG501"), None)
    if other is not None:
        raise RefusedError(f"the run read another dataset: {other.message}", path=run, expected=str(path))
    found: Coverage = verdict.account.get("coverage") or {}
    return found
