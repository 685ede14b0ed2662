"""What interruptions cost a run that checkpoints, when they come at a constant rate and without memory. Pure.

An interruption loses what was done since the last checkpoint, and then a restart. For the rate r (an hour) and a
stretch of s hours from one checkpoint to the next, the stretch is tried until it goes through once; of the tries that
do not, (e^(rs) - 1) are expected, and they lose (e^(rs) - 1) / r - s hours in all. For a small rs this is r s² / 2:
half a stretch for each interruption. Source: Daly 2006, "A higher order estimate of the optimum checkpoint interval
for restart dumps", Future Generation Computer Systems 22(3), whose expected time it is, divided into its parts; the
best interval is the first order of it, Young 1974, "A first order approximation to the optimum checkpoint interval",
Communications of the ACM 17(9).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

__all__ = ["best_interval_hours", "expected_interruptions", "expected_lost_hours"]


def expected_interruptions(stretches: Iterable[float], *, rate: float) -> float:
    """Return how many interruptions are expected until every stretch (hours) went through; inf beyond reason."""
    return sum(_expm1(rate * hours) for hours in stretches)


def expected_lost_hours(stretches: Iterable[float], *, rate: float) -> float:
    """Return the hours of work that are expected to be lost, restarts not counted; inf beyond reason."""
    return sum(_lost(hours, rate) for hours in stretches)


def best_interval_hours(checkpoint_hours: float, *, rate: float) -> float:
    """Return the hours between checkpoints at which taking them and losing work cost the least together; rate > 0."""
    return math.sqrt(2 * checkpoint_hours / rate)


def _lost(hours: float, rate: float) -> float:
    exponent = rate * hours
    if exponent < 1e-5:  # the difference below loses its digits there
        return rate * hours**2 / 2
    return _expm1(exponent) / rate - hours


def _expm1(exponent: float) -> float:
    try:
        return math.expm1(exponent)
    except OverflowError:
        return math.inf
