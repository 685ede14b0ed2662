"""The command line: `python -P -m data_prep prepare` and `resolve`. Parses, calls one function, prints, exits."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from data_prep.config import PreparationConfig
from data_prep.job import local_files
from data_prep.manifest import ALGORITHM
from data_prep.pipeline import PreparedDataset, prepare
from data_prep.progress import Progress, Quiet
from data_prep.sources.opening import open_source
from ledger.cli.options import AllowNetworkFs
from ledger.cli.screen import guard, program_name
from ledger.config import dump_config, leaf_classes, load_config

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)

ConfigFiles = Annotated[
    list[Path],
    typer.Option("--config", metavar="FILE", help="A YAML file; may be repeated, later ones override."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A dotted key; may be repeated, overrides the files."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.callback()
def _commands() -> None:
    """Prepare text as tokenized, ordered and verified shards."""


@app.command("prepare")
def prepare_command(
    *,
    config: ConfigFiles,
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="Folder of the dataset.")],
    overrides: Overrides = None,
    allow_network_fs: AllowNetworkFs = False,
    as_json: AsJson = False,
) -> None:
    """Prepare a dataset; with the same configuration again, verify and reuse it."""
    resolved = load_config(config, overrides or (), model=PreparationConfig)
    with _progress() as progress:
        prepared = prepare(resolved, output=output, progress=progress, allow_network_fs=allow_network_fs)
    if as_json:
        print(json.dumps(_summary(prepared), indent=2))
    else:
        _print_summary(prepared)


@app.command()
def resolve(
    *,
    config: ConfigFiles,
    overrides: Overrides = None,
    list_files: Annotated[
        bool,
        typer.Option("--list-files", help="With --json: name the local files that are read, and read none."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the complete configuration without preparing anything."""
    resolved = load_config(config, overrides or (), model=PreparationConfig)
    if not as_json:
        print(dump_config(resolved), end="")
        return
    result: dict[str, object] = {
        "config": resolved.model_dump(mode="json"),
        "classes": leaf_classes(resolved),
        "parts": {"algorithm": ALGORITHM},
    }
    if list_files:
        result["files"] = {place: _as_pairs(files) for place, files in local_files(resolved).items()}
    else:
        result["inputs"] = open_source(resolved.source).identify().model_dump(mode="json")
    print(json.dumps(result, indent=2, ensure_ascii=False))


def _as_pairs(files: list[tuple[str, Path]]) -> list[list[str]]:
    return [[name, str(path.absolute())] for name, path in files]


def main() -> None:
    """Run the command line; an error is one sentence on stderr and an exit code."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    signal.signal(signal.SIGTERM, _terminate)
    name = program_name("python -P -m data_prep")
    sys.exit(guard(lambda: _run(name)))


def _run(name: str) -> None:
    try:
        app(prog_name=name)
    except KeyboardInterrupt:
        print("interrupted; complete shards are kept for the next preparation", file=sys.stderr)
        raise


class _ShownProgress:
    """Shows stages as bars of a terminal."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Begin a stage; the one before is done."""
        self._finish()
        self._task = self._bars.add_task(name, total=total, unit=unit)

    def advance(self, amount: int) -> None:
        """Move the bar of the stage."""
        if self._task is not None:
            self._bars.advance(self._task, amount)

    def _finish(self) -> None:
        if self._task is not None:
            done = self._bars.tasks[self._task].completed
            self._bars.update(self._task, total=done or 1, completed=done or 1)


@contextmanager
def _progress() -> Iterator[Progress]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Quiet()
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console) as bars:
        yield _ShownProgress(bars)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """End as after an error, so that workers end and what is of no use goes."""
    print("terminated; complete shards are kept for the next preparation", file=sys.stderr)
    sys.exit(143)


def _summary(prepared: PreparedDataset) -> dict[str, object]:
    return {
        "dataset": str(prepared.directory),
        "outcome": prepared.outcome,
        "metadata_sha256": prepared.metadata_sha256,
        "vocabulary": prepared.manifest.tokenizer.vocabulary,
        "left_out": prepared.manifest.left_out,
        "splits": {
            name: {"documents": split.documents, "tokens": split.tokens, "shards": len(split.shards)}
            for name, split in prepared.manifest.splits.items()
        },
    }


def _print_summary(prepared: PreparedDataset) -> None:
    console = Console()
    verb = "prepared" if prepared.outcome == "prepared" else "verified and reused"
    console.print(f"{verb}: {prepared.directory}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"metadata_sha256: {prepared.metadata_sha256}", highlight=False, soft_wrap=True)
    table = Table("split", "documents", "tokens", "bytes of text", "shards")
    for name, split in prepared.manifest.splits.items():
        numbers = (split.documents, split.tokens, split.bytes, len(split.shards))
        table.add_row(name, *(f"{number:,}" for number in numbers))
    console.print(table)
