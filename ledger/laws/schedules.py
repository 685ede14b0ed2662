"""Learning-rate schedules as laws: the rate of an update follows from the recipe and the update's number alone.

The position of a schedule is `step × tokens per update`, never the tokens seen: a skipped attempt moves the data on
but not the rate. Warm-up is counted in updates and never capped to the length of the run, so a run that ends in it
keeps its warm-up rate; after the horizon the rate stays at its end value, also when the target is raised.

Sources: linear warm-up, Goyal et al. 2017, "Accurate, Large Minibatch SGD" (https://arxiv.org/abs/1706.02677),
section 2.2; cosine decay without restarts, Loshchilov and Hutter 2017, "SGDR" (https://arxiv.org/abs/1608.03983),
equation 5, with the minimum as a share of the base rate; warm-up, stable, decay, Hu et al. 2024, "MiniCPM"
(https://arxiv.org/abs/2404.06395), section 4, with a linear decay to zero as in Hägele et al. 2024
(https://arxiv.org/abs/2405.18392).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

__all__ = ["ConstantSchedule", "CosineSchedule", "Schedule", "WsdSchedule", "learning_rate", "parse_schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CosineSchedule:
    """Linear warm-up over `warmup_steps` updates, then half a cosine from the base rate to its end at the horizon."""

    horizon_tokens: int
    """Tokens (steps × tokens per update) at which the rate reaches its end value; fixed at the first start."""
    warmup_steps: int = 312
    """Updates until the base rate is reached: update 1 uses base / `warmup_steps`; 0 means none."""
    min_lr_ratio: float = 0.0
    """The end value as a share of the base rate, from 0 to 1."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for numbers out of range."""
        _require(self.horizon_tokens >= 0, f"horizon must not be negative, not {self.horizon_tokens}")
        _require(self.warmup_steps >= 0, f"warmup_steps must not be negative, not {self.warmup_steps}")
        _require(0.0 <= self.min_lr_ratio <= 1.0, f"min_lr_ratio must lie in [0, 1], not {self.min_lr_ratio}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WsdSchedule:
    """Linear warm-up, the base rate, then a linear decay to zero over the last `decay_fraction` of the horizon.

    A warm-up that reaches into the decay leaves no stable part; one over the whole horizon leaves no decay.
    """

    horizon_tokens: int
    """Tokens (steps × tokens per update) at which the rate is zero; fixed at the first start."""
    warmup_steps: int = 312
    """Updates until the base rate is reached; 0 means none."""
    decay_fraction: float = 0.1
    """Share of the horizon that decays, from 0 (the base rate is held to the end and after it) to 1."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for numbers out of range."""
        _require(self.horizon_tokens >= 0, f"horizon must not be negative, not {self.horizon_tokens}")
        _require(self.warmup_steps >= 0, f"warmup_steps must not be negative, not {self.warmup_steps}")
        _require(
            0.0 <= self.decay_fraction <= 1.0, f"decay_fraction must lie in [0, 1], not {self.decay_fraction}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSchedule:
    """Linear warm-up, then the base rate for ever; for runs that repeat a batch until they have learnt it."""

    warmup_steps: int = 0
    """Updates until the base rate is reached; 0 means none."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for numbers out of range."""
        _require(self.warmup_steps >= 0, f"warmup_steps must not be negative, not {self.warmup_steps}")


Schedule: TypeAlias = CosineSchedule | WsdSchedule | ConstantSchedule


def learning_rate(schedule: Schedule, *, step: int, tokens_per_update: int, base: float) -> float:
    """Return the rate of update number `step` (from 1), the one about to be applied.

    `base` is the rate of the parameter group. Raises `ValueError` for a step before the first or an update without
    tokens.
    """
    if step < 1:
        raise ValueError(f"updates are numbered from 1; there is no update {step}")
    if tokens_per_update < 1:
        raise ValueError(f"an update holds at least one token, not {tokens_per_update}")
    if step < schedule.warmup_steps:
        return base * step / schedule.warmup_steps
    if isinstance(schedule, ConstantSchedule):
        return base
    position = step * tokens_per_update
    if isinstance(schedule, WsdSchedule):
        return base * _wsd_share(schedule, position=position, tokens_per_update=tokens_per_update)
    return base * _cosine_share(schedule, position=position, tokens_per_update=tokens_per_update)


def parse_schedule(section: Mapping[str, object]) -> Schedule | None:
    """Return the schedule that a recipe's `schedule` section describes, None for a name that is not known here.

    Raises `ValueError` if a field of a known schedule is absent, of the wrong type or out of range.
    """
    parse = _PARSERS.get(str(section.get("name")))
    return None if parse is None else parse(section)


def _cosine_share(schedule: CosineSchedule, *, position: int, tokens_per_update: int) -> float:
    """Return the share of the base rate at `position` tokens, none of them in the warm-up."""
    decay_start = schedule.warmup_steps * tokens_per_update
    if position <= decay_start:
        return 1.0
    if position >= schedule.horizon_tokens:
        return schedule.min_lr_ratio
    progress = (position - decay_start) / (schedule.horizon_tokens - decay_start)
    cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
    return schedule.min_lr_ratio + (1.0 - schedule.min_lr_ratio) * cosine


def _wsd_share(schedule: WsdSchedule, *, position: int, tokens_per_update: int) -> float:
    """Return the share of the base rate at `position` tokens, none of them in the warm-up."""
    horizon, warmup = schedule.horizon_tokens, schedule.warmup_steps * tokens_per_update
    decay_start = max(float(warmup), (1.0 - schedule.decay_fraction) * horizon)
    if decay_start >= horizon or position <= decay_start:
        return 1.0
    return max(0.0, (horizon - position) / (horizon - decay_start))


def _parse_cosine(section: Mapping[str, object]) -> CosineSchedule:
    return CosineSchedule(
        horizon_tokens=_integer(section, "horizon"),
        warmup_steps=_integer(section, "warmup_steps", default=312),
        min_lr_ratio=_number(section, "min_lr_ratio", default=0.0),
    )


def _parse_wsd(section: Mapping[str, object]) -> WsdSchedule:
    return WsdSchedule(
        horizon_tokens=_integer(section, "horizon"),
        warmup_steps=_integer(section, "warmup_steps", default=312),
        decay_fraction=_number(section, "decay_fraction", default=0.1),
    )


def _parse_constant(section: Mapping[str, object]) -> ConstantSchedule:
    return ConstantSchedule(warmup_steps=_integer(section, "warmup_steps", default=0))


_PARSERS: dict[str, Callable[[Mapping[str, object]], Schedule]] = {
    "cosine": _parse_cosine,
    "wsd": _parse_wsd,
    "constant": _parse_constant,
}


def _integer(section: Mapping[str, object], key: str, *, default: int | None = None) -> int:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"schedule.{key} must be a whole number, not {value!r}")
    return value


def _number(section: Mapping[str, object], key: str, *, default: float) -> float:
    value = section.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"schedule.{key} must be a number, not {value!r}")
    return float(value)


def _require(condition: bool, problem: str) -> None:  # noqa: FBT001 (reads like the assertion it stands for)
    if not condition:
        raise ValueError(problem)
