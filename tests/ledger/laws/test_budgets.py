from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ledger.laws.budgets import period_ends, steps_of_budget, whole_periods

PERIODS = st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0]) | st.integers(1, 40).map(float)
PARAMETERS = st.integers(1, 10**9)
TOKENS = st.sampled_from([1, 8, 1_000, 131_072, 524_288]) | st.integers(1, 10**6)
COUNTS = st.integers(1, 20)


def nominal(period: float, *, number: int, parameters: int) -> Fraction:
    """Tokens of the first `number` periods as they are written on paper."""
    return Fraction(Decimal(str(period))) * number * parameters


def ends_of(period: float, *, count: int, parameters: int, tokens: int) -> list[int]:
    """Return the ends of periods long enough to hold an update; what is shorter has its own tests."""
    assume(nominal(period, number=1, parameters=parameters) >= tokens)
    return period_ends(period, count=count, parameters=parameters, tokens_per_update=tokens)


@given(period=PERIODS, count=COUNTS, parameters=PARAMETERS, tokens=TOKENS)
def test_a_period_ends_at_the_nearest_update_ties_up(period: float, count: int, parameters: int, tokens: int):
    for number, end in enumerate(ends_of(period, count=count, parameters=parameters, tokens=tokens), start=1):
        missing = nominal(period, number=number, parameters=parameters) - end * tokens
        assert -Fraction(tokens, 2) <= missing < Fraction(tokens, 2)


@given(period=PERIODS, count=COUNTS, more=COUNTS, parameters=PARAMETERS, tokens=TOKENS)
def test_a_larger_budget_keeps_the_periods_of_a_smaller(
    period: float, count: int, more: int, parameters: int, tokens: int
):
    smaller = ends_of(period, count=count, parameters=parameters, tokens=tokens)
    larger = ends_of(period, count=count + more, parameters=parameters, tokens=tokens)
    assert larger[:count] == smaller


@given(period=PERIODS, count=COUNTS, parameters=PARAMETERS, tokens=TOKENS)
def test_every_period_holds_an_update_and_they_make_up_the_budget(
    period: float, count: int, parameters: int, tokens: int
):
    ends = ends_of(period, count=count, parameters=parameters, tokens=tokens)
    assert all(before < end for before, end in zip([0, *ends], ends, strict=False))
    whole = float(Fraction(Decimal(str(period))) * count)
    assume(Fraction(Decimal(str(whole))) == Fraction(Decimal(str(period))) * count)
    assert ends[-1] == steps_of_budget(whole, parameters=parameters, tokens_per_update=tokens)
    assert whole_periods(whole, period=period) == count


@given(period=PERIODS, count=COUNTS, parameters=st.integers(1, 100), tokens=st.integers(1, 200))
def test_periods_are_refused_exactly_where_one_is_empty(
    period: float, count: int, parameters: int, tokens: int
):
    ends = [
        (2 * nominal(period, number=number, parameters=parameters) + tokens) // (2 * tokens)
        for number in range(count + 1)
    ]
    if len(set(ends)) == len(ends):
        assert period_ends(period, count=count, parameters=parameters, tokens_per_update=tokens) == ends[1:]
        return
    with pytest.raises(ValueError, match="holds no update"):
        period_ends(period, count=count, parameters=parameters, tokens_per_update=tokens)


def test_a_tie_goes_up():
    assert period_ends(1.5, count=4, parameters=10, tokens_per_update=10) == [2, 3, 5, 6]


def test_an_empty_period_is_named():
    with pytest.raises(ValueError, match=r"period 2 of 0\.5"):
        period_ends(0.5, count=3, parameters=10, tokens_per_update=10)


@pytest.mark.parametrize(
    ("budget", "period", "count"), [(20, 0.5, 40), (0.3, 0.1, 3), (40.0, 0.5, 80), (1, 1, 1)]
)
def test_whole_periods_are_counted_as_they_are_written(budget: float, period: float, count: int):
    assert whole_periods(budget, period=period) == count


@pytest.mark.parametrize(("budget", "period"), [(20, 0.3), (0.5, 1.0), (1.0, 0.7)])
def test_a_budget_that_is_no_whole_number_of_periods_is_refused(budget: float, period: float):
    with pytest.raises(ValueError, match="no whole number of periods"):
        whole_periods(budget, period=period)


@pytest.mark.parametrize(
    ("period", "count", "parameters", "tokens"),
    [(0.0, 1, 1, 1), (-1.0, 1, 1, 1), (1.0, 0, 1, 1), (1.0, 1, 0, 1), (1.0, 1, 1, 0)],
)
def test_nothing_is_no_budget(period: float, count: int, parameters: int, tokens: int):
    with pytest.raises(ValueError, match="at least"):
        period_ends(period, count=count, parameters=parameters, tokens_per_update=tokens)


def test_twenty_tokens_for_each_of_twenty_million_parameters():
    ends = period_ends(0.5, count=40, parameters=20_108_032, tokens_per_update=131_072)
    assert (ends[0], ends[-1]) == (77, 3_068)
