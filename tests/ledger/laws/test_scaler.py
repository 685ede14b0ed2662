from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.laws.scaler import LossScale, ScalerLaw, parse_scaler_law

LAW = ScalerLaw(initial_scale=1024.0, growth_interval=3)


def test_the_scale_grows_after_so_many_updates_in_a_row():
    assert LAW.after_updates(LAW.initial, updates=2) == LossScale(scale=1024.0, growth_tracker=2)
    assert LAW.after_updates(LAW.initial, updates=3) == LossScale(scale=2048.0, growth_tracker=0)
    assert LAW.after_updates(LAW.initial, updates=7) == LossScale(scale=4096.0, growth_tracker=1)


def test_an_overflow_backs_off_and_begins_a_new_count():
    assert LAW.after_overflow(LossScale(scale=1024.0, growth_tracker=2)) == LossScale(
        scale=512.0, growth_tracker=0
    )


@given(st.integers(0, 40), st.integers(0, 40), st.floats(1.5, 1e6), st.integers(1, 7))
def test_updates_one_by_one_and_at_once_are_the_same(first, second, initial, interval):
    law = ScalerLaw(initial_scale=initial, growth_interval=interval)
    state = law.initial
    for _ in range(first + second):
        state = law.after_updates(state)
    halves = law.after_updates(law.after_updates(law.initial, updates=first), updates=second)
    assert state == halves == law.after_updates(law.initial, updates=first + second)


def test_a_growth_beyond_the_range_of_float32_is_not_taken():
    law = ScalerLaw(initial_scale=2.0**127, growth_interval=1)
    assert law.after_updates(law.initial, updates=5) == law.initial
    assert law.after_updates(law.initial, updates=2**53) == law.initial


def test_scales_are_float32():
    law = ScalerLaw(initial_scale=0.1, growth_factor=1.1, growth_interval=1)
    assert law.initial.scale != 0.1
    assert law.initial.scale == pytest.approx(0.1, rel=1e-7)


@pytest.mark.parametrize(
    "changes",
    [
        {"initial_scale": 0.0},
        {"initial_scale": math.inf},
        {"initial_scale": 1e39},
        {"initial_scale": "1024"},
        {"growth_factor": 1.0},
        {"backoff_factor": 1.0},
        {"backoff_factor": None},
        {"growth_interval": 0},
        {"growth_interval": True},
        {"growth_interval": 2.0},
    ],
)
def test_a_law_that_is_none_is_refused(changes: dict[str, Any]):
    section = {
        "name": "fp16",
        "initial_scale": 1024,
        "growth_factor": 2,
        "backoff_factor": 0.5,
        "growth_interval": 3,
    }
    assert parse_scaler_law(section) == LAW
    with pytest.raises(ValueError, match=next(iter(changes))):
        parse_scaler_law(section | changes)


def test_other_number_formats_have_no_law():
    assert parse_scaler_law({"name": "bf16"}) is None
    assert parse_scaler_law({}) is None
