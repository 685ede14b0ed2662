from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ledger.laws.schedules import (
    ConstantSchedule,
    CosineSchedule,
    Schedule,
    WsdSchedule,
    learning_rate,
    parse_schedule,
)

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
    assert parse_schedule({"name": "wsd", "horizon": 5}) == WsdSchedule(
        horizon_tokens=5, warmup_steps=312, decay_fraction=0.1
    )


@pytest.mark.parametrize("section", [{}, {"name": "polynomial"}, {"name": None}])
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


@pytest.mark.parametrize("decay_fraction", [-0.1, 1.1, float("nan"), True, "0.1", None])
def test_wrong_decay_fraction_is_refused(decay_fraction: object):
    with pytest.raises(ValueError, match="decay_fraction"):
        parse_schedule({"name": "wsd", "horizon": 1_000, "decay_fraction": decay_fraction})


UPDATES = st.integers(1, 2_000)
WARM_UPS = st.integers(0, 2_500)
FRACTIONS = st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0]) | st.floats(0.001, 1.0)
TOKENS_PER_UPDATE = st.sampled_from([1, 7, 1_024, 131_072, 524_288])


def decay_start(updates: int, warm_up: int, fraction: float) -> Fraction:
    """Where the decay begins, in updates: S = max(W, (1 - d) N)."""
    return max(Fraction(warm_up), (1 - Fraction(str(fraction))) * updates)


@given(
    updates=UPDATES,
    warm_up=WARM_UPS,
    fraction=FRACTIONS,
    tokens=TOKENS_PER_UPDATE,
    step=st.integers(1, 5_000),
)
def test_warm_up_stable_decay_is_what_its_definition_says(
    updates: int, warm_up: int, fraction: float, tokens: int, step: int
):
    schedule = WsdSchedule(horizon_tokens=updates * tokens, warmup_steps=warm_up, decay_fraction=fraction)
    found = learning_rate(schedule, step=step, tokens_per_update=tokens, base=0.004)
    start = decay_start(updates, warm_up, fraction)
    if step < warm_up:
        share = Fraction(step, warm_up)
    elif fraction == 0 or start >= updates or step <= start:
        share = Fraction(1)
    else:
        share = max(Fraction(0), (updates - step) / (updates - start))
    assert found == pytest.approx(0.004 * float(share), rel=1e-9, abs=1e-15)
    assert 0.0 <= found <= 0.004


@given(updates=UPDATES, warm_up=st.integers(0, 300), fraction=st.floats(0.01, 1.0), tokens=TOKENS_PER_UPDATE)
def test_a_decay_ends_at_zero_and_stays_there(updates: int, warm_up: int, fraction: float, tokens: int):
    assume(warm_up < updates)
    schedule = WsdSchedule(horizon_tokens=updates * tokens, warmup_steps=warm_up, decay_fraction=fraction)
    for step in (updates, updates + 1, 10 * updates):
        assert learning_rate(schedule, step=step, tokens_per_update=tokens, base=1.0) == 0.0


@pytest.mark.parametrize("kind", [CosineSchedule, WsdSchedule])
@given(updates=UPDATES, warm_up=WARM_UPS, longer=st.integers(1, 1_000))
def test_warm_up_is_never_capped_to_the_run(kind: type[Schedule], updates: int, warm_up: int, longer: int):
    """Neither its length nor its rates depend on how far the run goes, also where it ends in its warm-up."""
    schedules = [
        kind(horizon_tokens=end * TOKENS, warmup_steps=warm_up)  # type: ignore[call-arg]
        for end in (updates, updates + longer)
    ]
    for step in {1, warm_up // 2, warm_up - 1} & set(range(1, warm_up)):
        assert [rate(schedule, step) for schedule in schedules] == [step / warm_up] * 2
    if warm_up:
        assert rate(schedules[1], warm_up) == 1.0


@pytest.mark.parametrize("kind", [CosineSchedule, WsdSchedule])
@given(updates=UPDATES, warm_up=WARM_UPS)
def test_behind_the_warm_up_no_rate_rises(kind: type[Schedule], updates: int, warm_up: int):
    schedule = kind(horizon_tokens=updates * TOKENS, warmup_steps=warm_up)  # type: ignore[call-arg]
    first = max(1, warm_up)
    rates = [rate(schedule, step) for step in range(first, first + 200)]
    assert rates == sorted(rates, reverse=True)


def test_a_warm_up_over_the_whole_run_leaves_no_decay():
    schedule = WsdSchedule(horizon_tokens=10 * TOKENS, warmup_steps=10, decay_fraction=0.5)
    assert [rate(schedule, step) for step in (5, 9, 10, 11, 100)] == [0.5, 0.9, 1.0, 1.0, 1.0]


def test_a_warm_up_into_the_decay_leaves_no_stable_part():
    schedule = WsdSchedule(horizon_tokens=10 * TOKENS, warmup_steps=6, decay_fraction=0.5)
    assert [rate(schedule, step) for step in (6, 7, 8, 9, 10)] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_no_decay_holds_the_base_rate_to_the_end_and_after_it():
    schedule = WsdSchedule(horizon_tokens=10 * TOKENS, warmup_steps=2, decay_fraction=0.0)
    assert [rate(schedule, step) for step in (1, 2, 10, 11)] == [0.5, 1.0, 1.0, 1.0]


@given(updates=UPDATES, warm_up=st.integers(0, 400), step=st.integers(1, 2_500), tokens=TOKENS_PER_UPDATE)
def test_a_rate_depends_on_updates_and_not_on_their_size(updates: int, warm_up: int, step: int, tokens: int):
    rates = [
        learning_rate(
            WsdSchedule(horizon_tokens=updates * size, warmup_steps=warm_up),
            step=step,
            tokens_per_update=size,
            base=1.0,
        )
        for size in (1, tokens)
    ]
    assert rates[0] == pytest.approx(rates[1], rel=1e-9, abs=1e-12)
