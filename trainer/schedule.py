"""The learning rate of the next update: the law of `ledger.laws.schedules` and where the run stands on it."""

from __future__ import annotations

from ledger.laws.schedules import learning_rate, parse_schedule
from ledger.records.fields import Json
from trainer.config import OptimizerConfig, TrainerConfig

__all__ = ["ScheduleState", "base_rates"]


class ScheduleState:
    """The schedule's position, in tokens of successful updates; a skipped attempt leaves it where it is.

    Args:
        config: a resolved recipe; the horizon of its schedule is fixed.
    """

    def __init__(self, config: TrainerConfig) -> None:
        law = parse_schedule(config.schedule.model_dump(mode="json"))
        if law is None:
            raise ValueError(f"no law for the schedule {config.schedule.name!r}")
        self._law = law
        self._bases = base_rates(config.optimizer)
        self._tokens_per_update = config.tokens_per_update
        self._position_tokens = 0

    def next_rates(self) -> dict[str, float]:
        """Return the rate of each group of the optimizer in the update about to be applied."""
        step = self._position_tokens // self._tokens_per_update + 1
        return {
            group: learning_rate(self._law, step=step, tokens_per_update=self._tokens_per_update, base=base)
            for group, base in self._bases.items()
        }

    def advance(self) -> None:
        """Move on by one successful update."""
        self._position_tokens += self._tokens_per_update

    def capture(self) -> dict[str, Json]:
        """Return the position as a checkpoint stores it."""
        return {"position": self._position_tokens}

    def restore(self, state: Json) -> None:
        """Take the position from a checkpoint."""
        self._position_tokens = int(state["position"])


def base_rates(config: OptimizerConfig) -> dict[str, float]:
    """Return the base rate of each group that an optimizer may have."""
    rates = dict.fromkeys(("decay", "no_decay"), config.learning_rate)
    if config.muon is not None:
        rates["muon"] = config.muon.learning_rate or config.learning_rate
    return rates
