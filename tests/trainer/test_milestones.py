"""What is due when: a pure function of the recipe."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.errors import ConfigError
from tests.trainer.tiny import tiny_config
from trainer.config import TrainerConfig
from trainer.milestones import Calendar, calendar_of

PERIODS = {"target_step": None, "budget": {"tokens_per_parameter": 2.0, "period_tokens_per_parameter": 0.5}}
MODEL = {"vocabulary": 64, "width": 32, "layers": 1, "heads": 4, "kv_heads": 2, "hidden": 48}


def calendar(
    checkpoint: dict[str, Any] | None = None, evaluation: dict[str, Any] | None = None, **run: Any
) -> Calendar:
    config = tiny_config(
        "data",  # type: ignore[arg-type]
        run={"target_step": 12} | run,
        model=MODEL,
        checkpoint=checkpoint or {},
        evaluation=evaluation or {},
    )
    if config.run.target_step is None:
        config = config.model_copy(update={"run": config.run.model_copy(update={"target_step": 10**6})})
    return calendar_of(config)


def kinds(found: Calendar, *, upto: int = 12) -> dict[int, str]:
    return {step: kind for step in range(upto + 1) if (kind := found.checkpoint_kind(step)) is not None}


@pytest.mark.parametrize("policy", ["none", "final"])
def test_nothing_is_kept_on_the_way_without_a_schedule(policy):
    assert kinds(calendar({"policy": policy, "interval": 2})) == {}


def test_an_interval_counts_from_the_run_s_beginning_and_a_milestone_is_stronger():
    found = calendar({"policy": "interval", "interval": 3, "milestones": [6, 7]})
    assert kinds(found) == {3: "interval", 6: "milestone", 7: "milestone", 9: "interval", 12: "interval"}


def test_explicit_keeps_the_milestones_alone():
    assert kinds(calendar({"policy": "explicit", "interval": 2, "milestones": 5})) == {5: "milestone"}


def _period_ends() -> list[int]:
    found = calendar({"policy": "interval", "interval_periods": 1}, **PERIODS)
    return list(kinds(found, upto=10_000))


def test_periods_become_the_steps_at_which_they_end():
    ends = _period_ends()
    assert len(ends) == 4
    every_second = calendar(
        {"policy": "interval", "interval_periods": 2, "milestone_periods": [3]}, **PERIODS
    )
    assert kinds(every_second, upto=10_000) == {
        ends[1]: "interval",
        ends[2]: "milestone",
        ends[3]: "interval",
    }


def test_evaluations_fall_on_multiples_and_on_the_ends_of_periods():
    found = calendar(evaluation={"interval": 400, "every_period": True}, **PERIODS)
    ends = _period_ends()
    due = [step for step in range(ends[-1] + 1) if found.has_evaluation(step)]
    assert due == sorted({*ends, *range(400, ends[-1] + 1, 400)})


def test_without_validation_no_evaluation_is_due():
    found = calendar(evaluation={"enabled": False, "interval": 1, "every_period": True}, **PERIODS)
    assert not any(found.has_evaluation(step) for step in range(1_000))


def test_everything_outside_the_run_is_named_in_one_message():
    with pytest.raises(ConfigError) as caught:
        calendar({"policy": "explicit", "milestones": [5, 13, 20], "milestone_periods": [2]})
    message = str(caught.value)
    assert "[13, 20] lie beyond the target step 12" in message
    assert "checkpoint.milestone_periods counts periods" in message
    assert caught.value.exit_code == 2


def test_a_period_that_the_budget_does_not_have_is_refused():
    with pytest.raises(ConfigError, match=r"milestone_periods \[5\] lie beyond the budget's 4 periods"):
        calendar({"policy": "explicit", "milestone_periods": [4, 5]}, **PERIODS)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"checkpoint": {"policy": "interval", "interval_periods": 2}}, "checkpoint.interval_periods"),
        ({"evaluation": {"every_period": True}}, "evaluation.every_period"),
    ],
)
def test_periods_need_a_budget_that_has_them(section, key):
    config: TrainerConfig = tiny_config("data", model=MODEL, **section)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=key):
        calendar_of(config)
