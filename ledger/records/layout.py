"""Where everything lies inside a run folder, and how checkpoints are named."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "CHECKPOINTS",
    "ENVIRONMENTS",
    "EVALUATIONS",
    "EXPORTS",
    "LOCK",
    "LOG",
    "LOGS",
    "MANIFEST",
    "MODEL_FILE",
    "OPTIMIZER_FILE",
    "OWN_FOLDERS",
    "OWN_NAMES",
    "PARENT",
    "PARENT_MANIFEST",
    "PARENT_RECIPE",
    "QUARANTINE",
    "RECIPES",
    "RECIPE_LOCK",
    "RUN",
    "SEAL",
    "TRAINER_STATE",
    "VERDICT",
    "WAIVERS",
    "checkpoint_name",
    "parse_checkpoint_name",
]

RUN: Final = "run.json"
LOCK: Final = "run.lock"
LOG: Final = "metrics.jsonl"
RECIPES: Final = "recipes"
ENVIRONMENTS: Final = "environments"
CHECKPOINTS: Final = "checkpoints"
EVALUATIONS: Final = "evaluations"
EXPORTS: Final = "exports"
PARENT: Final = "parent"
PARENT_MANIFEST: Final = f"{PARENT}/manifest.json"
PARENT_RECIPE: Final = f"{PARENT}/recipe.json"
QUARANTINE: Final = "quarantine"
LOGS: Final = "logs"
RECIPE_LOCK: Final = "recipe.lock.json"
SEAL: Final = "seal.json"
VERDICT: Final = "verdict.json"
WAIVERS: Final = "waivers.json"
MANIFEST: Final = "manifest.json"
TRAINER_STATE: Final = "trainer.json"
MODEL_FILE: Final = "model.safetensors"
OPTIMIZER_FILE: Final = "optimizer.safetensors"

OWN_FOLDERS: Final = frozenset(
    {CHECKPOINTS, ENVIRONMENTS, EVALUATIONS, QUARANTINE, RECIPES, EXPORTS, PARENT, LOGS}
)
"""Folders that may lie in a run folder."""

OWN_NAMES: Final = OWN_FOLDERS | {LOCK, LOG, RUN, SEAL, RECIPE_LOCK, VERDICT, WAIVERS}
"""What may lie in a run folder."""

_CHECKPOINT: Final = re.compile(r"step-([0-9]{8,16})-s([0-9]{2,9})\Z")


def checkpoint_name(*, step: int, session: int) -> str:
    """Return the folder name of the checkpoint that `session` took at `step`."""
    return f"step-{step:08d}-s{session:02d}"


def parse_checkpoint_name(name: str) -> tuple[int, int] | None:
    """Return (step, session) of a checkpoint's folder name; None for any other name."""
    match = _CHECKPOINT.match(name)
    if match is None:
        return None
    step, session = int(match[1]), int(match[2])
    return (step, session) if checkpoint_name(step=step, session=session) == name else None
