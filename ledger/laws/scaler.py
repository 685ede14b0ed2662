"""The loss scale of float16 training as a law: it follows from the recipe and from which attempts overflowed.

After `growth_interval` successful updates in a row the scale is multiplied by `growth_factor`; an overflow multiplies
it by `backoff_factor`; both begin a new count. A skip for any other reason moves neither. The scale is a float32, and
a growth beyond its range is not taken. Source: Micikevicius et al. 2018, "Mixed Precision Training"
(https://arxiv.org/abs/1710.03740), section 3.2, in the form of torch's `_amp_update_scale_`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LossScale", "ScalerLaw", "parse_scaler_law"]

MIN_GROWTH_FACTOR = 1.001
"""Less is no growth; it also bounds how often a scale can grow before it leaves the range of float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScale:
    """Where the law stands."""

    scale: float
    growth_tracker: int
    """Successful updates since the scale last moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerLaw:
    """How the scale moves."""

    initial_scale: float = 65_536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2_000
    """Successful updates in a row."""

    def __post_init__(self) -> None:
        """Raise `ValueError` for numbers out of range."""
        if not 0 < _float32(self.initial_scale) < math.inf:
            raise ValueError(f"initial_scale must be a positive float32, not {self.initial_scale}")
        if not MIN_GROWTH_FACTOR <= self.growth_factor < math.inf:
            raise ValueError(f"growth_factor must be at least {MIN_GROWTH_FACTOR}, not {self.growth_factor}")
        if not 0 < self.backoff_factor < 1:
            raise ValueError(f"backoff_factor must lie between 0 and 1, not {self.backoff_factor}")
        if self.growth_interval < 1:
            raise ValueError(f"growth_interval must be at least 1, not {self.growth_interval}")

    @property
    def initial(self) -> LossScale:
        """Where a run begins."""
        return LossScale(scale=_float32(self.initial_scale), growth_tracker=0)

    def after_updates(self, state: LossScale, *, updates: int = 1) -> LossScale:
        """Return where the law stands after so many successful updates in a row."""
        growths, tracker = divmod(state.growth_tracker + updates, self.growth_interval)
        scale = state.scale
        for _ in range(growths):
            grown = _float32(scale * self.growth_factor)
            if not math.isfinite(grown) or grown == scale:
                break
            scale = grown
        return LossScale(scale=scale, growth_tracker=tracker)

    def after_overflow(self, state: LossScale) -> LossScale:
        """Return where the law stands after an update that was skipped because its gradients overflowed."""
        return LossScale(scale=_float32(state.scale * self.backoff_factor), growth_tracker=0)


def parse_scaler_law(section: Mapping[str, object]) -> ScalerLaw | None:
    """Return the law that a recipe's `precision` section describes, None for a number format without one.

    Raises `ValueError` if a field is absent, of the wrong type or out of range.
    """
    if section.get("name") != "fp16":
        return None
    numbers = [section.get(name) for name in ("initial_scale", "growth_factor", "backoff_factor")]
    interval = section.get("growth_interval")
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers):
        raise ValueError(f"initial_scale, growth_factor and backoff_factor must be numbers, not {numbers}")
    if isinstance(interval, bool) or not isinstance(interval, int):
        raise ValueError(f"growth_interval must be a whole number, not {interval!r}")
    initial, growth, backoff = (float(str(number)) for number in numbers)
    return ScalerLaw(
        initial_scale=initial, growth_factor=growth, backoff_factor=backoff, growth_interval=interval
    )


def _float32(number: float) -> float:
    """Return the nearest float32; infinity beyond its range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        return math.inf
