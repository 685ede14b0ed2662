from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.laws.preemption import best_interval_hours, expected_interruptions, expected_lost_hours


@given(st.floats(1e-6, 20), st.floats(1e-6, 1))
def test_a_small_risk_loses_half_a_stretch_for_each_interruption(hours: float, risk: float):
    rate = risk * 1e-3 / hours
    lost = expected_lost_hours([hours], rate=rate)
    assert lost == pytest.approx(expected_interruptions([hours], rate=rate) * hours / 2, rel=1e-3)


@given(st.floats(1e-4, 10), st.floats(1e-4, 10), st.integers(2, 9))
def test_more_checkpoints_never_lose_more(hours: float, rate: float, parts: int):
    whole = expected_lost_hours([hours], rate=rate)
    assert expected_lost_hours([hours / parts] * parts, rate=rate) <= whole * (1 + 1e-6)


def test_without_a_risk_nothing_is_lost_and_a_hopeless_one_is_infinite():
    assert expected_lost_hours([5.0], rate=0.0) == 0
    assert expected_interruptions([5.0], rate=0.0) == 0
    assert expected_lost_hours([1e6], rate=1.0) == math.inf


def test_the_expectation_is_what_a_simulation_finds():
    choose, rate, hours, tries = random.Random(0), 0.7, 2.0, 20_000
    lost = count = 0.0
    for _ in range(tries):
        while (until := choose.expovariate(rate)) < hours:
            lost += until
            count += 1
    assert expected_lost_hours([hours], rate=rate) == pytest.approx(lost / tries, rel=0.05)
    assert expected_interruptions([hours], rate=rate) == pytest.approx(count / tries, rel=0.05)


def test_the_best_interval_balances_taking_checkpoints_and_losing_work():
    cost, rate, work = 0.01, 0.05, 100.0

    def total(interval: float) -> float:
        return work / interval * cost + expected_lost_hours([interval] * round(work / interval), rate=rate)

    best = best_interval_hours(cost, rate=rate)
    assert total(best) < min(total(best * 2), total(best / 2))
