"""Where a number lies on an axis, and the round numbers beside it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["Scale", "compact", "round_numbers", "scale_of"]

LOGARITHMIC_FROM: Final = 50.0
"""Ratio of the greatest to the least value from which an axis of positive values is logarithmic."""
_MARGIN: Final = 0.06


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis from `low` to `high`; a logarithmic one holds positive numbers only."""

    low: float
    high: float
    is_logarithmic: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies, 0 at the low end and 1 at the high one; what lies far outside, just outside."""
        low, high = self._place(self.low), self._place(self.high)
        return min(2.0, max(-1.0, (self._place(value) - low) / (high - low)))

    def _place(self, value: float) -> float:
        return math.log10(value) if self.is_logarithmic else value

    def marks(self, count: int) -> list[float]:
        """Return about `count` round numbers on the axis."""
        if not self.is_logarithmic:
            return round_numbers(self.low, self.high, count=count)
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        stride = max(1, math.ceil((last - first) / count))
        decades = [10.0**power for power in range(first, last + 1, stride)]
        found = [mark for mark in decades if self.low <= mark <= self.high]
        if len(found) >= 2:
            return found
        return [
            mark for power in range(first, last + 1) for mark in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
            if self.low <= mark <= self.high
        ]  # fmt: skip


def scale_of(values: Iterable[float], *, from_zero: bool = False, may_be_logarithmic: bool = True) -> Scale:
    """Return an axis that holds all values, with a little room beside them."""
    found = list(values) or [0.0, 1.0]
    low, high = min(found), max(found)
    if from_zero:
        low = min(0.0, low)
    elif may_be_logarithmic and low > 0 and high / low >= LOGARITHMIC_FROM:
        room = (high / low) ** _MARGIN
        if math.isfinite(high * room) and low / room > 0:
            return Scale(low=low / room, high=high * room, is_logarithmic=True)
    if low == high:
        room = abs(low) * 0.1 or 1.0
        return Scale(low=low - room, high=high + room)
    room = high * _MARGIN - low * _MARGIN
    if not math.isfinite(high + room) or not math.isfinite(low - room) or not math.isfinite(high - low):
        return Scale(low=-1.0, high=1.0)  # beyond what can be drawn; the table has the numbers
    return Scale(low=low if from_zero and low == 0 else low - room, high=high + room)


def round_numbers(low: float, high: float, *, count: int) -> list[float]:
    """Return the multiples of 1, 2 or 5 times a power of ten between two numbers, about `count` of them."""
    wanted = (high - low) / count
    if wanted <= 0 or not math.isfinite(wanted):
        return []
    power = 10.0 ** math.floor(math.log10(wanted))
    if power == 0:
        return []
    stride = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted * 0.999)
    first = math.ceil(low / stride)
    marks = [index * stride for index in range(first, first + 2 * count + 2)]
    return [mark for mark in marks if low <= mark <= high]


def compact(value: float) -> str:
    """Return a number in a few characters: 1.5k, 20M."""
    for bound, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if bound <= abs(value) < 1e15:
            return f"{value / bound:.4g}{unit}"
    return f"{value:.4g}"
