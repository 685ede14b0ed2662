"""Budgets in tokens for each parameter, and their division into periods of whole updates.

The k-th of n periods ends at the update nearest to k × its nominal tokens, ties up, counted from the run's beginning:
no rounding adds up, the whole budget is met to within half an update, and a larger budget keeps the periods of a
smaller one. Tokens for each parameter as the measure of a budget: Hoffmann et al. 2022, "Training Compute-Optimal
Large Language Models" (https://arxiv.org/abs/2203.15556).
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["period_ends", "steps_of_budget", "whole_periods"]


def whole_periods(tokens_per_parameter: float, *, period: float) -> int:
    """Return how many periods make up a budget, both in tokens for each parameter.

    The numbers are taken as they are written in decimal digits, so that 0.3 is three times 0.1.
    Raises `ValueError` if that is no whole number.
    """
    count = _exact(tokens_per_parameter) / _exact(period)
    if count.denominator != 1:
        raise ValueError(
            f"a budget of {tokens_per_parameter} tokens per parameter is no whole number of periods of {period}"
        )
    return int(count)


def steps_of_budget(tokens_per_parameter: float, *, parameters: int, tokens_per_update: int) -> int:
    """Return the update nearest to the budget, ties up.

    Raises `ValueError` for a budget of less than half an update, or without parameters.
    """
    (end,) = period_ends(
        tokens_per_parameter, count=1, parameters=parameters, tokens_per_update=tokens_per_update
    )
    return end


def period_ends(period: float, *, count: int, parameters: int, tokens_per_update: int) -> list[int]:
    """Return the update at which each of the first `count` periods ends.

    Args:
        period: its length in tokens for each parameter.
        count: periods of the budget.
        parameters: trainable parameters of the model.
        tokens_per_update: target positions of one update.

    Raises `ValueError` if a period would hold no update.
    """
    if min(count, parameters, tokens_per_update) < 1 or period <= 0:
        raise ValueError("a budget needs a period, a parameter and a token at least")
    updates = _exact(period) * parameters / tokens_per_update
    ends = [math.floor(number * updates + Fraction(1, 2)) for number in range(1, count + 1)]
    for number, (before, end) in enumerate(zip([0, *ends], ends, strict=False), start=1):
        if end == before:
            raise ValueError(
                f"period {number} of {period} tokens for each of {parameters:,} parameters holds no update of "
                f"{tokens_per_update:,} tokens"
            )
    return ends


def _exact(number: float) -> Fraction:
    return Fraction(repr(float(number)))
