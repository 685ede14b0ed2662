"""The stages of a pilot: their order, what each reads, and what each changes of the long run unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ledger.records.parts import Purpose

__all__ = ["KINDS", "STAGES", "StageKind", "selected_stages"]


@dataclass(frozen=True, kw_only=True)
class StageKind:
    """What a stage is, before any configuration."""

    reads: tuple[str, ...]
    """Stages whose results it reads."""
    purpose: Purpose | None = None
    """What its run is for; null: it trains nothing."""
    has_identity_of_run: bool = False
    """Whether only operational settings may differ from the long run's."""
    version: int = 1
    """Raised when the same inputs would give other evidence."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the trainer, laid over the long run's."""


_FINAL_CHECKPOINT: Final[dict[str, Any]] = {
    "policy": "final",
    "interval": None,
    "interval_periods": None,
    "milestones": [],
    "milestone_periods": [],
    "keep_last": None,
    "training_state": True,
}
"""One checkpoint, at the end."""


def _checkpoints(interval: int) -> dict[str, Any]:
    return {**_FINAL_CHECKPOINT, "policy": "interval", "interval": interval}


def _evaluation(interval: int | None) -> dict[str, Any]:
    return {"enabled": True, "interval": interval, "every_period": False}


KINDS: Final[dict[str, StageKind]] = {
    "prepare": StageKind(reads=()),
    "smoke": StageKind(
        reads=("prepare",),
        purpose="smoke",
        recipe={
            "run": {"target_step": 2},
            "logging": {"interval": 1},
            "evaluation": _evaluation(None),
            "checkpoint": _FINAL_CHECKPOINT,
        },
    ),
    "overfit": StageKind(
        reads=("prepare",),
        purpose="overfit",
        recipe={
            "run": {"target_step": 75},
            "data": {"repeat": 1, "shuffle": None, "sources": None},
            "schedule": {"name": "constant", "warmup_steps": 5},
            "logging": {"interval": 5},
            "evaluation": {"enabled": False, "every_period": False},
            "checkpoint": _FINAL_CHECKPOINT,
        },
    ),
    "acceptance": StageKind(
        reads=("prepare",),
        purpose="acceptance",
        recipe={
            "run": {"target_step": 20},
            "data": {"repeat": 2, "shuffle": None, "sources": None},
            "logging": {"interval": 5},
            "evaluation": _evaluation(10),
            "checkpoint": _checkpoints(10),
        },
    ),
    "stability": StageKind(
        reads=("prepare",),
        purpose="stability",
        has_identity_of_run=True,
        recipe={
            "run": {"target_step": 60},
            "logging": {"interval": 5},
            "evaluation": _evaluation(20),
            "checkpoint": _FINAL_CHECKPOINT,
        },
    ),
    "resume": StageKind(
        reads=("prepare",),
        purpose="resume",
        has_identity_of_run=True,
        recipe={
            "run": {"target_step": 24},
            "logging": {"interval": 1, "evidence": True},
            "evaluation": _evaluation(10),
            "checkpoint": _checkpoints(8),
        },
    ),
    "validate": StageKind(reads=("prepare", "stability")),
}
"""Every stage that a pilot has of itself, in the order in which they run."""

STAGES: Final = tuple(KINDS)
"""Their names in that order."""


def selected_stages(asked: Iterable[str] | None, *, extra: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the stages to run, in order: those asked for (None: all) and what they read.

    A stage that trains brings `validate` along, which cannot be left out.

    Args:
        asked: names of stages.
        extra: a configuration's own stages in their order, with what each reads.
    """
    reads = {**{name: kind.reads for name, kind in KINDS.items()}, **extra}
    pending = list(reads) if asked is None else list(asked)
    chosen: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in chosen:
            chosen.add(name)
            pending += [*reads[name], *(["validate"] if name != "prepare" else [])]
    return [name for name in reads if name in chosen]
