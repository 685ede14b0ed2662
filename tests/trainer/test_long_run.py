"""What the ledger plans for a recipe is what the trainer's calendar does."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.config import load_config
from ledger.pilot.long_run import LongRun
from trainer.arithmetic import parameter_table
from trainer.config import TrainerConfig
from trainer.milestones import calendar_of
from trainer.recipe import fix_end

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize(
    ("names", "overrides"),
    [
        (["tiny"], ["model.vocabulary=300", "run.target_step=250"]),
        (["20m"], []),
        (["20m", "20m-wsd"], []),
        (["tiny"], ["model.vocabulary=300", "checkpoint.policy=final", "checkpoint.interval=null"]),
        (["tiny"], ["model.vocabulary=300", "checkpoint.policy=none", "checkpoint.interval=null"]),
        (["tiny"], ["model.vocabulary=300", "checkpoint.milestones=[7, 100, 200]", "evaluation.enabled=false"]),
        (["20m"], ["checkpoint.policy=explicit",
                   "checkpoint.interval_periods=null", "checkpoint.milestone_periods=[3]"]),
    ],
)  # fmt: skip
def test_the_plan_is_the_trainers_calendar(names: list[str], overrides: list[str]):
    config = fix_end(
        load_config([CONFIGS / f"{name}.yaml" for name in names], overrides, model=TrainerConfig)
    )
    calendar = calendar_of(config)
    plan = LongRun.of(config.model_dump(mode="json"), parameters=sum(parameter_table(config.model).values()))
    steps = range(1, config.target_step)
    kinds = {step: calendar.checkpoint_kind(step) for step in steps}
    keeps = config.checkpoint.policy != "none"
    assert plan.interval_steps == [step for step in steps if kinds[step] == "interval"]
    assert plan.milestone_steps == [step for step in steps if kinds[step] == "milestone"]
    assert plan.checkpoint_steps == [*[step for step in steps if kinds[step]], *[config.target_step][:keeps]]
    assert plan.subset_evaluations == sum(
        calendar.has_evaluation(step) for step in range(1, config.target_step + 1)
    )
