"""From what was typed to the recipe that is recorded: completed, compared with a recorded one, explained.

Imports no torch, so that a recipe can be resolved where nothing can be trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from ledger.config import leaf_classes
from ledger.dataset.manifest import Dataset
from ledger.errors import ConfigError, RefusedError
from ledger.recipes import LeafDifference, recipe_differences
from ledger.records.documents import Recipe
from trainer.arithmetic import budgeted_step
from trainer.config import ConstantConfig, DataConfig, GuardsConfig, SourceConfig, TrainerConfig

__all__ = [
    "PARTS",
    "branch_config",
    "complete_config",
    "config_of",
    "continue_config",
    "fix_end",
    "parts_of",
    "recipe_of",
]

PARTS: Final = {
    "trainer": 2,
    "decoder": 2,
    "adamw": 1,
    "muon": 1,
    "cosine": 1,
    "wsd": 1,
    "constant": 1,
    "fp32": 1,
    "bf16": 1,
    "fp16": 1,
    "guards": 1,
    "reader": 2,
    "shuffle": 1,
    "packing": 1,
    "mix": 1,
    "evaluation": 1,
}
"""Version of each part; raised when the same recipe would compute something else."""


def parts_of(config: TrainerConfig) -> dict[str, int]:
    """Return the parts that a recipe uses, each with its version; what it leaves out does not concern it."""
    is_used = {
        "muon": config.optimizer.muon is not None,
        **{name: config.schedule.name == name for name in ("cosine", "wsd", "constant")},
        **{name: config.precision.name == name for name in ("fp32", "bf16", "fp16")},
        "guards": config.guards != GuardsConfig(),
        "shuffle": config.data.shuffle is not None,
        "packing": config.data.packing != "stream",
        "mix": config.data.sources is not None,
        "evaluation": config.evaluation.enabled,
    }
    return {name: version for name, version in PARTS.items() if is_used.get(name, True)}


def complete_config(
    config: TrainerConfig, dataset: Dataset, *, mix: Mapping[str, Dataset] | None = None
) -> TrainerConfig:
    """Fill in what only the datasets at hand decide: their absolute paths, their identities, the vocabulary.

    `dataset` is that of `data.path`, `mix` those of `data.sources` by their names.

    Raises:
        ConfigError: the configuration asks for fewer embeddings than the dataset has token ids.
        RefusedError: it asks for another dataset than the one that is there.
    """
    vocabulary = dataset.manifest.tokenizer.vocabulary
    if 0 < config.model.vocabulary < vocabulary:
        raise ConfigError(
            f"model.vocabulary is {config.model.vocabulary}, but the dataset's ids reach {vocabulary - 1}",
            expected=f"at least {vocabulary}, or 0 for the dataset's own",
        )
    data: dict[str, object] = _identified(config.data, dataset, place="data")
    if config.data.sources is not None and mix is not None:
        data["sources"] = {
            name: source.model_copy(update=_identified(source, mix[name], place=f"data.sources.{name}"))
            for name, source in config.data.sources.items()
        }
    return config.model_copy(
        update={
            "data": config.data.model_copy(update=data),
            "model": config.model.model_copy(update={"vocabulary": config.model.vocabulary or vocabulary}),
        }
    )


def _identified(section: DataConfig | SourceConfig, dataset: Dataset, *, place: str) -> dict[str, object]:
    """Return path and identity of a dataset as the recipe records them."""
    identity = section.metadata_sha256 or dataset.metadata_sha256
    if identity != dataset.metadata_sha256:
        raise RefusedError(
            f"is the dataset {dataset.metadata_sha256}",
            path=dataset.directory,
            expected=f"{place}.metadata_sha256 = {identity}",
            advice=f"correct {place}.path, or set {place}.metadata_sha256 to null to take this one",
        )
    return {"path": str(Path(section.path).absolute()), "metadata_sha256": identity}


def fix_end(config: TrainerConfig, *, recorded: TrainerConfig | None = None) -> TrainerConfig:
    """Return the configuration with the target step and the horizon of its schedule fixed, where they were left open.

    Args:
        config: what was typed, completed.
        recorded: the run's recipe in force, whose target and horizon stay; None at the first start, where the target
            is the budget's and the horizon becomes target x tokens per update.

    Raises:
        ConfigError: the target step of a whole run lies below the budget, or the budget holds no update. A rehearsal
            (`run.purpose`) may stop short of it.
    """
    target = _fixed_target(config, recorded=recorded)
    fixed = config.model_copy(update={"run": config.run.model_copy(update={"target_step": target})})
    schedule = fixed.schedule
    if isinstance(schedule, ConstantConfig) or schedule.horizon is not None:
        return fixed
    horizon = target * fixed.tokens_per_update
    if (
        recorded is not None
        and not isinstance(recorded.schedule, ConstantConfig)
        and recorded.schedule.horizon
    ):
        horizon = recorded.schedule.horizon
    return fixed.model_copy(update={"schedule": schedule.model_copy(update={"horizon": horizon})})


def _fixed_target(config: TrainerConfig, *, recorded: TrainerConfig | None) -> int:
    typed, budget = config.run.target_step, config.run.budget
    if typed is None and recorded is not None:
        typed = recorded.run.target_step
    if budget is None:
        return config.target_step if typed is None else typed
    try:
        budgeted = budgeted_step(budget, config)
    except ValueError as error:
        raise ConfigError(
            f"run.budget: {error}", advice="raise the budget, or make an update smaller"
        ) from error
    if typed is not None and typed < budgeted and config.run.purpose == "full":
        raise ConfigError(
            f"run.target_step is {typed}, but run.budget asks for {budgeted} updates",
            expected="a target step that goes beyond the budget, or none",
            advice="leave run.target_step out",
        )
    return budgeted if typed is None else typed


def recipe_of(config: TrainerConfig) -> Recipe:
    """Return the configuration as the record that goes into the run."""
    return Recipe(config=config.model_dump(mode="json"), classes=leaf_classes(config))


def config_of(recipe: Recipe) -> TrainerConfig:
    """Return the configuration that a recorded recipe holds.

    Raises:
        RefusedError: it is not one of this trainer's.
    """
    try:
        return TrainerConfig.model_validate_json(json.dumps(recipe.config), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        raise RefusedError(
            f"the recorded recipe is not one of this trainer: {'.'.join(map(str, first['loc']))}: {first['msg']}",
            advice="continue the run with the trainer that started it",
        ) from error


def continue_config(recorded: Recipe, typed: TrainerConfig, *, run: Path) -> TrainerConfig:
    """Return the configuration under which a run goes on: the recorded identity with the typed operational settings.

    Args:
        recorded: the recipe of the run's last session.
        typed: the completed configuration of this start.
        run: the run's folder, for messages.

    Raises:
        RefusedError: settings that define the experiment differ, or the target would fall; names all of them.
    """
    ours = config_of(recorded)
    effective = fix_end(typed, recorded=ours)
    differences = recipe_differences(recorded, recipe_of(effective))
    refused = [str(found) for found in differences if _is_refused(found)]
    if refused:
        raise RefusedError(
            f"{len(refused)} setting(s) differ from the run's (recorded -> typed): " + "; ".join(refused),
            path=run,
            expected="the settings that define the experiment unchanged, and a target that is not lower",
            advice="set them back, or start a new run with another --run",
        )
    return effective


def branch_config(parent: Recipe, typed: TrainerConfig, *, parent_folder: Path) -> TrainerConfig:
    """Return the configuration of a new run that continues another: its identity, but for the schedule.

    What is left open (target, horizon) is the parent's. The target may be any that the parent has not passed.

    Args:
        parent: the recipe that the checkpoint was made under.
        typed: the completed configuration of this start.
        parent_folder: the checkpoint's folder, for messages.

    Raises:
        RefusedError: settings that define the experiment differ; names all of them.
    """
    effective = fix_end(typed, recorded=config_of(parent))
    differences = recipe_differences(parent, recipe_of(effective))
    refused = [
        str(found) for found in differences if found.leaf_class == "identity" and not found.is_of_schedule
    ]
    if refused:
        raise RefusedError(
            f"{len(refused)} setting(s) differ from the run's that is continued (recorded -> typed): "
            + "; ".join(refused),
            path=parent_folder,
            expected="the settings that define the experiment unchanged, but for the schedule",
            advice="set them back, or take the weights alone: --mode initialise",
        )
    return effective


def _is_refused(difference: LeafDifference) -> bool:
    if difference.field == "run.target_step":
        return bool(difference.after < difference.before)
    return difference.leaf_class == "identity"
