"""What is due at which step: evaluations and checkpoints, as a pure function of the recipe. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ledger.errors import ConfigError
from trainer.arithmetic import period_steps
from trainer.config import TrainerConfig

__all__ = ["Calendar", "calendar_of"]


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """The steps at which something is due on the way; what is due at the target is always the same."""

    evaluation_interval: int | None
    evaluation_steps: frozenset[int]
    checkpoint_interval: int | None
    checkpoint_steps: frozenset[int]
    milestones: frozenset[int]

    def has_evaluation(self, step: int) -> bool:
        """Tell whether the subset is measured at this step."""
        return _is_multiple(step, self.evaluation_interval) or step in self.evaluation_steps

    def checkpoint_kind(self, step: int) -> Literal["milestone", "interval"] | None:
        """Return the kind of checkpoint that is due at this step, the stronger of two, or None."""
        if step in self.milestones:
            return "milestone"
        is_due = _is_multiple(step, self.checkpoint_interval) or step in self.checkpoint_steps
        return "interval" if is_due else None


def _is_multiple(step: int, interval: int | None) -> bool:
    return interval is not None and step > 0 and step % interval == 0


def calendar_of(config: TrainerConfig) -> Calendar:
    """Return the calendar of a resolved recipe.

    Raises:
        ConfigError: a milestone lies beyond the run's end, or periods are counted and the budget has none; one message
            names everything that is wrong.
    """
    ends = _period_ends(config)
    _require_inside(config, periods=len(ends))
    checkpoint, evaluation = config.checkpoint, config.evaluation
    on_the_way = checkpoint.policy == "interval"
    has_milestones = checkpoint.policy in ("interval", "explicit")
    every = checkpoint.interval_periods
    return Calendar(
        evaluation_interval=evaluation.interval if evaluation.enabled else None,
        evaluation_steps=frozenset(ends if evaluation.enabled and evaluation.every_period else ()),
        checkpoint_interval=checkpoint.interval if on_the_way else None,
        checkpoint_steps=frozenset(ends[every - 1 :: every] if on_the_way and every else ()),
        milestones=frozenset(
            [*checkpoint.milestones, *(ends[period - 1] for period in checkpoint.milestone_periods)]
            if has_milestones
            else ()
        ),
    )


def _period_ends(config: TrainerConfig) -> list[int]:
    try:
        return period_steps(config)
    except ValueError as error:
        raise ConfigError(f"run.budget: {error}", advice="lengthen the periods") from error


def _require_inside(config: TrainerConfig, *, periods: int) -> None:
    checkpoint = config.checkpoint
    problems = []
    if beyond := [step for step in checkpoint.milestones if step > config.target_step]:
        problems.append(f"checkpoint.milestones {beyond} lie beyond the target step {config.target_step}")
    counted = {
        "checkpoint.interval_periods": checkpoint.interval_periods is not None,
        "checkpoint.milestone_periods": bool(checkpoint.milestone_periods),
        "evaluation.every_period": config.evaluation.enabled and config.evaluation.every_period,
    }
    if not periods:
        problems += [
            f"{name} counts periods, and the budget has none"
            for name, is_asked in counted.items()
            if is_asked
        ]
    elif beyond := [period for period in checkpoint.milestone_periods if period > periods]:
        problems.append(f"checkpoint.milestone_periods {beyond} lie beyond the budget's {periods} periods")
    if problems:
        counts_none = not periods and any(counted.values())
        raise ConfigError(
            "; ".join(problems),
            expected="milestones inside the run",
            advice="correct them"
            + (
                ", or give the budget periods (run.budget.period_tokens_per_parameter)" if counts_none else ""
            ),
        )
