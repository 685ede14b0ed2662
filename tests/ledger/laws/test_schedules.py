from __future__ import annotations

import math
from typing import Any

import pytest

from ledger.laws.schedules import ConstantSchedule, CosineSchedule, Schedule, learning_rate, parse_schedule

TOKENS = 100


def rate(schedule: Schedule, step: int, *, base: float = 1.0) -> float:
    return learning_rate(schedule, step=step, tokens_per_update=TOKENS, base=base)


def test_first_update_uses_a_share_and_the_last_of_warm_up_the_whole_base_rate():
    schedule = CosineSchedule(horizon_tokens=100 * TOKENS, warmup_steps=10)
    assert rate(schedule, 1, base=0.5) == 0.05
    assert rate(schedule, 10, base=0.5) == 0.5
    assert rate(schedule, 11, base=0.5) < 0.5


def test_without_warm_up_the_first_update_already_decays():
    schedule = CosineSchedule(horizon_tokens=4 * TOKENS, warmup_steps=0)
    assert rate(schedule, 1) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)), rel=1e-15)
    assert rate(schedule, 2) == pytest.approx(0.5, rel=1e-15)


def test_end_value_is_reached_at_the_horizon_and_kept_behind_it():
    schedule = CosineSchedule(horizon_tokens=100 * TOKENS, warmup_steps=10, min_lr_ratio=0.1)
    assert rate(schedule, 99) > 0.1
    assert rate(schedule, 100) == 0.1
    assert rate(schedule, 10_000) == 0.1


def test_run_that_ends_in_warm_up_keeps_its_warm_up_rate():
    schedule = CosineSchedule(horizon_tokens=5 * TOKENS, warmup_steps=10)
    assert rate(schedule, 5) == 0.5
    assert rate(schedule, 6) == 0.6


def test_horizon_between_two_updates_ends_the_decay_with_the_next():
    schedule = CosineSchedule(horizon_tokens=3 * TOKENS + 1, warmup_steps=0)
    assert rate(schedule, 3) > 0.0
    assert rate(schedule, 4) == 0.0


def test_constant_schedule_keeps_the_base_rate():
    assert [rate(ConstantSchedule(), step) for step in (1, 1_000)] == [1.0, 1.0]
    assert rate(ConstantSchedule(warmup_steps=4), 1) == 0.25


def test_there_is_no_update_zero():
    with pytest.raises(ValueError, match="numbered from 1"):
        rate(ConstantSchedule(), 0)


def test_recipe_section_is_parsed_with_its_defaults():
    assert parse_schedule({"name": "cosine", "horizon": 5}) == CosineSchedule(
        horizon_tokens=5, warmup_steps=312
    )
    assert parse_schedule({"name": "constant"}) == ConstantSchedule()


@pytest.mark.parametrize("section", [{}, {"name": "wsd"}, {"name": None}])
def test_unknown_schedule_is_none(section: dict[str, Any]):
    assert parse_schedule(section) is None


@pytest.mark.parametrize(
    "change",
    [
        {"horizon": None},
        {"horizon": -1},
        {"warmup_steps": True},
        {"warmup_steps": 1.5},
        {"min_lr_ratio": 1.1},
        {"min_lr_ratio": float("nan")},
        {"min_lr_ratio": "0"},
    ],
)
def test_wrong_field_of_a_known_schedule_is_refused(change: dict[str, Any]):
    with pytest.raises(ValueError, match=next(iter(change))):
        parse_schedule({"name": "cosine", "horizon": 1_000, **change})
