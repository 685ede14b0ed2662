"""When a recipe will evaluate and checkpoint, read off its configuration as the reference trainer means it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from ledger.laws.budgets import period_ends, whole_periods

__all__ = ["LongRun"]


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Budget(_Lenient):
    tokens_per_parameter: float | None = None
    period_tokens_per_parameter: float | None = None


class _Run(_Lenient):
    target_step: int
    budget: _Budget | None = None


class _Batch(_Lenient):
    micro_batch: int
    sequence: int
    accumulation: int = 1


class _Checkpoint(_Lenient):
    policy: str = "final"
    interval: int | None = None
    interval_periods: int | None = None
    milestones: tuple[int, ...] = ()
    milestone_periods: tuple[int, ...] = ()
    keep_last: int | None = None


class _Evaluation(_Lenient):
    enabled: bool = True
    interval: int | None = None
    every_period: bool = False
    batches: int = 8
    micro_batch: int = 8


def _multiples(interval: int | None, *, below: int) -> range:
    return range(interval, below, interval) if interval else range(0)


class LongRun(_Lenient):
    """A resolved configuration, as far as the budget of its run needs it."""

    run: _Run
    batch: _Batch
    checkpoint: _Checkpoint = _Checkpoint()
    evaluation: _Evaluation = _Evaluation()
    parameters: int
    """Trainable parameters of the model."""

    @classmethod
    def of(cls, config: Mapping[str, Any], *, parameters: int) -> LongRun:
        """Return what a configuration plans; raises `ValueError` where a section is absent or malformed."""
        return cls.model_validate({**config, "parameters": parameters})

    @property
    def updates(self) -> int:
        """Successful updates to reach."""
        return self.run.target_step

    @property
    def tokens_per_update(self) -> int:
        """Target positions of one update."""
        return self.batch.micro_batch * self.batch.sequence * self.batch.accumulation

    @property
    def period_steps(self) -> list[int]:
        """The step at which each period of the budget ends; empty where there are none."""
        budget = self.run.budget
        if (
            budget is None
            or budget.tokens_per_parameter is None
            or budget.period_tokens_per_parameter is None
        ):
            return []
        return period_ends(
            budget.period_tokens_per_parameter,
            count=whole_periods(budget.tokens_per_parameter, period=budget.period_tokens_per_parameter),
            parameters=self.parameters,
            tokens_per_update=self.tokens_per_update,
        )

    @property
    def interval_steps(self) -> list[int]:
        """The steps of the checkpoints that retention may remove."""
        ends, every = self.period_steps, self.checkpoint.interval_periods
        if self.checkpoint.policy != "interval":
            return []
        by_steps = (
            range(self.checkpoint.interval, self.updates, self.checkpoint.interval)
            if self.checkpoint.interval
            else ()
        )
        by_periods = [end for end in ends[every - 1 :: every] if end < self.updates] if every else []
        return sorted({*by_steps, *by_periods} - set(self.milestone_steps))

    @property
    def milestone_steps(self) -> list[int]:
        """The steps of the checkpoints that stay for good, the one at the target not counted."""
        if self.checkpoint.policy not in ("interval", "explicit"):
            return []
        ends = self.period_steps
        periods = [ends[period - 1] for period in self.checkpoint.milestone_periods if period <= len(ends)]
        return sorted(step for step in {*self.checkpoint.milestones, *periods} if step < self.updates)

    @property
    def checkpoint_steps(self) -> list[int]:
        """The steps of all checkpoints, the one at the target included; empty where no weights are kept."""
        if self.checkpoint.policy == "none":
            return []
        return [*sorted({*self.interval_steps, *self.milestone_steps}), self.updates]

    @property
    def most_kept(self) -> int:
        """How many checkpoints lie on disk at most at one time, the one being written included."""
        intervals, keep = len(self.interval_steps), self.checkpoint.keep_last
        if keep is not None and keep + 1 < intervals:  # the newest, and the best
            intervals = keep + 2  # and one more until the oldest is removed
        return min(len(self.checkpoint_steps), intervals + len(self.milestone_steps) + 1)

    @property
    def subset_evaluations(self) -> int:
        """How often the subset is measured on the way."""
        if not self.evaluation.enabled:
            return 0
        by_steps = (
            range(self.evaluation.interval, self.updates + 1, self.evaluation.interval)
            if self.evaluation.interval
            else ()
        )
        by_periods = (
            [end for end in self.period_steps if end <= self.updates] if self.evaluation.every_period else []
        )
        return len({*by_steps, *by_periods})

    @property
    def subset_tokens(self) -> int:
        """Target positions of the subset."""
        return self.evaluation.batches * self.evaluation.micro_batch * self.batch.sequence
