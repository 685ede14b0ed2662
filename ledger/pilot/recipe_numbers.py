"""What a recipe says of itself before anything is trained, as the reference trainer means it. Pure.

A short pilot cannot show what goes wrong in the long run alone: weights that are taken away as fast as they are
learned, a warm-up that never ends. The recipe can.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt

from pydantic import BaseModel, ConfigDict, ValidationError

from ledger.records.fields import Json

__all__ = ["decay_per_update", "moment_ratio", "warmup_share"]


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Muon(_Lenient):
    learning_rate: float | None = None
    weight_decay: float | None = None


class _Optimizer(_Lenient):
    learning_rate: float
    beta1: float
    beta2: float
    weight_decay: float
    muon: _Muon | None = None


class _Batch(_Lenient):
    micro_batch: int
    sequence: int
    accumulation: int


class _Schedule(_Lenient):
    warmup_steps: int
    horizon: int | None = None


class _Recipe(_Lenient):
    optimizer: _Optimizer
    batch: _Batch
    schedule: _Schedule


def _read(config: Mapping[str, Json]) -> _Recipe | None:
    try:
        return _Recipe.model_validate(config)
    except ValidationError:  # another loop's: it has no such sections
        return None


def decay_per_update(config: Mapping[str, Json]) -> float | None:
    """Return the share of a weight that decay takes away in one update at the base rate, of the greatest group."""
    recipe = _read(config)
    if recipe is None:
        return None
    adamw, muon = recipe.optimizer, recipe.optimizer.muon or _Muon()
    rate = adamw.learning_rate if muon.learning_rate is None else muon.learning_rate
    decay = adamw.weight_decay if muon.weight_decay is None else muon.weight_decay
    return max(adamw.learning_rate * adamw.weight_decay, rate * decay)


def moment_ratio(config: Mapping[str, Json]) -> float | None:
    """Return beta1 over the root of beta2: Adam is known to converge where it is below 1 (Kingma and Ba 2015)."""
    recipe = _read(config)
    if recipe is None or not recipe.optimizer.beta2:
        return None
    return recipe.optimizer.beta1 / sqrt(recipe.optimizer.beta2)


def warmup_share(config: Mapping[str, Json]) -> float | None:
    """Return the warm-up over the schedule's horizon; 0 where a schedule has none."""
    recipe = _read(config)
    if recipe is None:
        return None
    batch, schedule = recipe.batch, recipe.schedule
    if not schedule.horizon:
        return 0.0
    return schedule.warmup_steps * batch.micro_batch * batch.sequence * batch.accumulation / schedule.horizon
