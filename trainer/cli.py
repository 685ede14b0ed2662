"""The command line, `python -P -m trainer`. Each command parses, calls one function, prints, exits."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.main import get_command

from ledger.cli.lazy import without_types
from ledger.cli.options import AllowNetworkFs
from ledger.cli.screen import guard, harmless, program_name
from ledger.config import dump_config, load_config
from ledger.errors import EvidenceMissingError, UsageError
from ledger.locks import read_lock
from ledger.recipes import identity_sha256
from ledger.records.locks import RecipeLock
from ledger.records.parts import BranchMode
from trainer.config import FOREIGN_SECTIONS, TrainerConfig
from trainer.exporting import export_checkpoint
from trainer.locking import config_of_lock
from trainer.milestones import calendar_of
from trainer.recipe import complete_config, fix_end, parts_of, recipe_of
from trainer.recorded import config_in_force, config_of_checkpoint, has_sessions
from trainer.report import measured_lines
from trainer.signals import StopRequest
from trainer.sources import DataSources, open_sources

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
)

EXIT_CODES = {"completed": 0, "closed": 0, "failed": 1, "stopped": 3}
"""Exit code of each way a session ends; `interrupted` ends with the signal's."""

ConfigFiles = Annotated[
    list[Path],
    typer.Option("--config", metavar="FILE", help="A YAML file; may be repeated, later ones override."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A dotted key; may be repeated, overrides the files."),
]


@app.callback()
def _commands() -> None:
    """Train decoder-only language models under the ledger's records."""


@app.command()
def train(
    *,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A YAML file; may be repeated, later ones override. Without one a run goes on, and a branch begins, "
            "under its recorded recipe.",
        ),
    ] = None,
    overrides: Overrides = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="Folder of the run; overrides run.directory.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="auto|latest|DIR",
            help="auto: from the latest checkpoint, or from the beginning where there is none; latest: from the "
            "latest checkpoint; or the folder of a checkpoint of this run.",
        ),
    ] = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin again at step 0 in a folder that holds a run.")
    ] = False,
    branch: Annotated[
        Path | None,
        typer.Option("--branch", metavar="DIR", help="Begin a new run at a checkpoint of another one."),
    ] = None,
    recipe_lock: Annotated[
        Path | None,
        typer.Option(
            "--recipe",
            metavar="LOCK",
            help="A recipe lock that the run must equal; without --config its recipe is the configuration.",
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar="continue|initialise",
            help="What a branch takes over: counters, state and recipe but for the schedule; or weights alone.",
        ),
    ] = None,
    allow_network_fs: AllowNetworkFs = False,
) -> None:
    """Train until the target step, from the beginning or from a checkpoint."""
    may_go_on = resume is not None or restart
    lock = None if recipe_lock is None else read_lock(recipe_lock)
    recipe = _recipe(config or [], overrides or [], run=run, branch=branch, may_go_on=may_go_on, lock=lock)
    if mode is not None and branch is None:
        raise UsageError("--mode belongs to --branch", advice="say --branch DIR, the checkpoint to begin at")
    training = _training_stack()
    stop = StopRequest()
    request = training.Request(
        config=recipe,
        run_dir=_run_directory(recipe, run),
        resume=resume,
        restart=restart,
        branch=None if branch is None else training.Branch(folder=branch, mode=_branch_mode(mode)),
        argv=tuple(sys.orig_argv),
        allow_network_fs=allow_network_fs,
        lock=lock,
        lock_path=recipe_lock,
    )
    try:
        with stop.listening():
            status = training.run_session(request, console=Console(stderr=True), stop=stop)
    except KeyboardInterrupt:
        status = "interrupted"
    raise typer.Exit(stop.exit_code if status == "interrupted" else EXIT_CODES.get(status, 0))


@app.command()
def evaluate(
    subject: Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT")],
    *,
    full: Annotated[
        bool, typer.Option("--full", help="The whole split, not the subset that is measured on the way.")
    ] = False,
    split: Annotated[str, typer.Option("--split", metavar="NAME", help="Which split.")] = "validation",
    overrides: Overrides = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write it here, not into the run; never overwritten."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evaluation as it is written.")] = False,
) -> None:
    """Measure a run's latest checkpoint, or a named one, on held-out text; no session is opened."""
    measuring = _training_stack("trainer.measuring")
    request = measuring.MeasureRequest(
        subject=subject, split=split, is_full=full, overrides=overrides or (), output=output
    )
    found = measuring.measure_checkpoint(request)
    if as_json:
        print(found.evaluation.model_dump_json(by_alias=True, indent=2))
    else:
        print("\n".join(harmless(line) for line in measured_lines(found.evaluation, found.checkpoint.folder)))
    _warn(f"written to {found.path}")


@app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT")],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write; never overwritten.")
    ],
) -> None:
    """Copy the weights of a checkpoint into a safetensors file of their own; torch is not needed."""
    sha256 = export_checkpoint(checkpoint, output)
    print(f"{sha256}  {output}")


@app.command()
def resolve(
    *,
    config: ConfigFiles,
    overrides: Overrides = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Also classes, identity, versions of parts and inputs.")
    ] = False,
    variants: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            metavar="NAME={…}",
            help="Sections, as JSON, laid over the complete configuration; may be repeated. With --json each stands "
            "under its name, resolved in the same way.",
        ),
    ] = None,
) -> None:
    """Print the complete configuration without training anything; torch is not needed."""
    recipe, data = _completed(
        load_config(config, overrides or (), model=TrainerConfig, apart=FOREIGN_SECTIONS)
    )
    if not as_json:
        print(dump_config(recipe), end="")
        return
    result = _resolved(recipe, data)
    if variants:
        result["variants"] = {
            name: _resolved(*_completed(load_config((), changes, model=TrainerConfig, base=result["config"])))
            for name, changes in map(_variant, variants)
        }
    print(json.dumps(result, indent=2, ensure_ascii=False))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line, by default the process's own; an error is one sentence on stderr and an exit code."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    name = program_name("python -P -m trainer")
    command = without_types(get_command(app))
    sys.exit(guard(lambda: command(args=arguments, prog_name=name)))


def _recipe(
    files: list[Path],
    overrides: list[str],
    *,
    run: Path | None,
    branch: Path | None,
    may_go_on: bool,
    lock: RecipeLock | None,
) -> TrainerConfig:
    """Return what was typed; without a file, the recorded or the locked recipe with what was typed."""
    if files:
        return load_config(files, overrides, model=TrainerConfig, apart=FOREIGN_SECTIONS)
    is_there = run is not None and may_go_on and (lock is None or has_sessions(run))
    if run is not None and is_there and (branch is None or has_sessions(run)):
        return config_in_force(run, overrides)
    if lock is not None:
        return config_of_lock(lock, overrides)
    if branch is not None:
        return config_of_checkpoint(branch, overrides)
    raise UsageError(
        "no configuration",
        expected="--config FILE, or --recipe LOCK; or --run DIR --resume auto, by which a run goes on under its "
        "recorded recipe",
    )


def _variant(typed: str) -> tuple[str, list[str]]:
    """Return a variant's name and its sections as overrides."""
    name, _, text = typed.partition("=")
    try:
        sections = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--variant {name} is not JSON", expected="NAME={…}") from error
    if not isinstance(sections, dict):
        raise UsageError(f"--variant {name} holds no sections", expected="NAME={…}")
    return name, [f"{section}={json.dumps(value)}" for section, value in sections.items()]


def _completed(recipe: TrainerConfig) -> tuple[TrainerConfig, DataSources | None]:
    """Return a configuration with everything filled in that its datasets decide, and these where they are there."""
    opened: DataSources | None = None
    try:
        opened = open_sources(recipe.data)
    except EvidenceMissingError as error:
        _warn(f"{error}; its identity and vocabulary stay open")
    if opened is not None:
        recipe = complete_config(recipe, opened.main, mix=opened.sources)
    recipe = fix_end(recipe)
    if recipe.model.vocabulary:  # else periods, which count parameters, cannot be placed yet
        calendar_of(recipe)
    return recipe, opened


def _resolved(recipe: TrainerConfig, data: DataSources | None) -> dict[str, Any]:
    record = recipe_of(recipe)
    identities = None if data is None else data.identities
    return {
        "config": record.config,
        "classes": record.classes,
        "identity_sha256": identity_sha256(record),
        "parts": parts_of(recipe),
        "inputs": {
            "dataset": {
                "path": recipe.data.path,
                "metadata_sha256": None if identities is None else identities.train,
                "validation_sha256": None if identities is None else identities.validation,
            }
        },
        "tokens_per_update": recipe.tokens_per_update,
    }


def _branch_mode(typed: str | None) -> BranchMode:
    modes: dict[str | None, BranchMode] = {"continue": "continue", "initialise": "initialise"}
    if typed in modes:
        return modes[typed]
    raise UsageError(
        "--branch without --mode" if typed is None else f"--mode {typed} is unknown",
        expected="--mode continue (counters, state and recipe but for the schedule) or initialise (weights alone)",
    )


def _run_directory(config: TrainerConfig, typed: Path | None) -> Path:
    if typed is not None:
        return typed
    if config.run.directory is None:
        raise UsageError("no folder for the run", expected="--run DIR, or run.directory in the configuration")
    return Path(config.run.directory)


def _training_stack(module: str = "trainer.session") -> ModuleType:
    """Load what needs torch; this is the one place that does."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise UsageError(
            f"training needs {error.name}, which is not installed", advice="pip install 'pilot-ledger[train]'"
        ) from error


def _warn(text: str) -> None:
    print(text, file=sys.stderr)
