"""Configurations that were recorded: of a run that goes on, of the checkpoint that a branch starts from. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ledger.checkpoints import read_checkpoint
from ledger.config import load_config
from ledger.errors import UsageError
from ledger.recorder.branching import read_parent
from ledger.recorder.opening import open_run, read_recipe
from ledger.records.documents import Recipe
from trainer.config import TrainerConfig
from trainer.recipe import config_of

__all__ = ["config_in_force", "config_of_checkpoint", "has_sessions", "overridden"]


def has_sessions(run_dir: Path) -> bool:
    """Tell whether a folder holds a run with a session."""
    return bool(open_run(run_dir).history.sessions)


def config_in_force(run_dir: Path, overrides: Iterable[str]) -> TrainerConfig:
    """Return the recipe of a run's last session, with overrides.

    Raises:
        UsageError: the folder holds no run with a session.
        RefusedError: the recipe is not one of this trainer's.
        ConfigError: an override is malformed.
    """
    sessions = open_run(run_dir).history.sessions
    if not sessions:
        raise UsageError(
            "there is no run to go on from", path=run_dir, expected="a run, or --config FILE for a new one"
        )
    return overridden(read_recipe(run_dir, sessions[-1].start.recipe_sha256), overrides)


def config_of_checkpoint(folder: Path, overrides: Iterable[str]) -> TrainerConfig:
    """Return the recipe that a checkpoint was made under, with overrides and without the folder of its run.

    Raises:
        LedgerError: the checkpoint is not complete, damaged, or outside its run; or as `config_in_force`.
    """
    config = overridden(read_parent(read_checkpoint(folder)).recipe, overrides)
    return config.model_copy(update={"run": config.run.model_copy(update={"directory": None})})


def overridden(recipe: Recipe, overrides: Iterable[str]) -> TrainerConfig:
    """Return a recorded recipe's configuration with `dotted.key=value` overrides."""
    recorded = config_of(recipe)
    return load_config((), overrides, model=TrainerConfig, base=recorded.model_dump(mode="json"))
