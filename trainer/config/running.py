"""How far a run goes, what it writes on its way, and on what it runs."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from ledger.config import StrictModel, leaf
from ledger.laws.budgets import whole_periods
from ledger.records.parts import Purpose

__all__ = [
    "BudgetConfig",
    "CheckpointConfig",
    "EvaluationConfig",
    "LimitsConfig",
    "LoggingConfig",
    "MachineConfig",
    "ProfilerConfig",
    "RunConfig",
]


class BudgetConfig(StrictModel):
    """How much to train, in tokens; it becomes the target step at the run's first start."""

    tokens: int | None = leaf("identity", None, ge=1)
    """Tokens of successful updates to reach at least; null: given by the parameters."""
    tokens_per_parameter: float | None = leaf("identity", None, gt=0)
    """Tokens of successful updates for each trainable parameter of the model, to within half an update."""
    period_tokens_per_parameter: float | None = leaf("identity", None, gt=0)
    """Length of one period of the budget; `tokens_per_parameter` is a whole number of them. Null: no periods."""

    @model_validator(mode="after")
    def _one_measure(self) -> BudgetConfig:
        if (self.tokens is None) == (self.tokens_per_parameter is None):
            raise ValueError("a budget is given either in tokens or in tokens_per_parameter")
        if self.period_tokens_per_parameter is not None:
            if self.tokens_per_parameter is None:
                raise ValueError("periods divide a budget in tokens_per_parameter")
            whole_periods(self.tokens_per_parameter, period=self.period_tokens_per_parameter)
        return self


class RunConfig(StrictModel):
    """What the run is called, what it is for and where it ends."""

    name: str = leaf("volatile", min_length=1, max_length=256)
    """What people call it."""
    purpose: Purpose = leaf("volatile", "full")
    """What the run is for: smoke, overfit, acceptance, stability, resume or full."""
    directory: str | None = leaf("volatile", None, min_length=1)
    """Folder of the run's records; null: given on the command line."""
    target_step: int | None = leaf("operational", None, ge=1, le=2**53 - 1)
    """Successful optimizer updates to reach; null: those of the budget. On resume it may only be raised."""
    budget: BudgetConfig | None = leaf("identity", None)
    """How much to train, in tokens; null: as `target_step` says. A greater `target_step` goes beyond it; only a
    rehearsal (`purpose`) stops short of it."""
    seed: int = leaf("identity", 0, ge=0, lt=2**32)
    """Seed of every random generator (Python, NumPy, torch), set once at the run's beginning."""

    @model_validator(mode="after")
    def _has_an_end(self) -> RunConfig:
        if self.target_step is None and self.budget is None:
            raise ValueError("a run needs a target_step or a budget")
        return self


class LoggingConfig(StrictModel):
    """How much evidence the log holds."""

    interval: int = leaf("operational", 10, ge=1)
    """Successful updates between train events; they fall on multiples of it."""
    evidence: bool = leaf("operational", default=False)
    """Digests of the whole training state with every train event (costs a hash of it each time)."""


class EvaluationConfig(StrictModel):
    """Whether, when and on how much held-out text the loss is measured."""

    enabled: bool = leaf("operational", default=True)
    """False: no validation at all, not even at the end."""
    interval: int | None = leaf("operational", None, ge=1)
    """Successful updates between evaluations of the subset; null: only the complete split, at the end."""
    every_period: bool = leaf("operational", default=False)
    """Also evaluate the subset at the end of each period of the budget."""
    batches: int = leaf("operational", 8, ge=1)
    """Size of the subset: the first N evaluation batches of the split."""
    micro_batch: int = leaf("operational", 8, ge=1)
    """Sequences of one evaluation batch. A mean's last bits depend on it, so keep it fixed."""


def _as_sorted(value: object) -> object:
    """Turn one number into a list of one, and any list of numbers into a sorted one without repetitions."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, int) for item in value):
        return tuple(sorted(set(value)))
    return value


Sorted: TypeAlias = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_as_sorted)]
"""Positive numbers, sorted, each once."""


class CheckpointConfig(StrictModel):
    """Which states are kept; every policy but none keeps one at the target."""

    policy: Literal["none", "final", "interval", "explicit"] = leaf("operational", "final")
    """none: no weights at all; final: at the target; interval: regularly; explicit: at the milestones alone."""
    interval: int | None = leaf("operational", None, ge=1)
    """Successful updates between checkpoints of the interval policy."""
    interval_periods: int | None = leaf("operational", None, ge=1)
    """The same in periods of the budget; one of the two."""
    milestones: Sorted = leaf("operational", ())
    """Steps whose checkpoints retention never removes; sorted, one number for a list of one."""
    milestone_periods: Sorted = leaf("operational", ())
    """The same in periods of the budget, counted from 1."""
    keep_last: int | None = leaf("operational", None, ge=1)
    """Interval checkpoints that stay: the newest so many, and the one of the best validation loss; null: all."""
    training_state: bool = leaf("operational", default=True)
    """False: on the way only weights are written, to `exports/`; the final checkpoint is always complete."""

    @model_validator(mode="after")
    def _policy_fits(self) -> CheckpointConfig:
        intervals = [value for value in (self.interval, self.interval_periods) if value is not None]
        if self.policy == "interval" and len(intervals) != 1:
            raise ValueError("policy interval needs an interval, in updates or in periods")
        if self.policy == "explicit" and not (self.milestones or self.milestone_periods):
            raise ValueError("policy explicit needs milestones, in steps or in periods")
        if self.policy in ("none", "final") and (self.milestones or self.milestone_periods):
            raise ValueError(f"policy {self.policy} has no milestones; use explicit or interval")
        return self


class LimitsConfig(StrictModel):
    """When to give up."""

    consecutive_skips: int = leaf("operational", 8, ge=1)
    """Attempts skipped in a row (non-finite loss or gradient) that end the run as failed."""
    grace_seconds: float = leaf("operational", 30.0, ge=0)
    """Seconds from a request to stop until the process is killed: a checkpoint is taken if it fits."""


class ProfilerConfig(StrictModel):
    """A window of updates under torch's profiler; its trace lies in `logs/` and its time counts as `profile`."""

    start_step: int = leaf("operational", ge=1)
    """The first update of the window."""
    steps: int = leaf("operational", 3, ge=1)
    """Updates of the window."""


class MachineConfig(StrictModel):
    """What to run on."""

    device: str = leaf("volatile", "cpu", pattern=r"^(cpu|cuda(:[0-9]+)?)$")
    """cpu, cuda or cuda:N."""
    threads: int = leaf("volatile", 1, ge=1, le=1_024)
    """Threads of one operation on the CPU; they decide the last bits and stand in the environment record."""
