"""Alternating measurements: every contender once a round, so that a machine that slows down slows all of them.

Beside the clock's ratio stands that of processor time, of this process and those it waited for: on a machine that
others use too it moves less, but it knows nothing of what runs at once.
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Contender", "measure"]


@dataclass(frozen=True)
class Contender:
    """Something that is timed, and how much work one call of it does."""

    run: Callable[[], object]
    work: float
    """Units of work of a call, such as tokens."""


def measure(contenders: Mapping[str, Contender], *, rounds: int, unit: str, base: str) -> dict[str, float]:
    """Time every contender in every round; print medians and ratios to `base`, each with its spread.

    Returns the median of the ratios of each round. The first round only warms up.
    """
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    works: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        for name, contender in contenders.items():
            gc.collect()
            begin, used = time.perf_counter(), _processor_seconds()
            contender.run()
            seconds, used = time.perf_counter() - begin, _processor_seconds() - used
            if number:
                rates[name].append(contender.work / seconds)
                works[name].append(contender.work / max(used, 1e-6))
    width = max(map(len, contenders))
    print(
        f"{'':{width}}  {unit:>12}  {'least':>9} {'most':>9}    ratio to {base} (least to most), by processor time"
    )
    medians = {}
    for name, found in rates.items():
        ratios = sorted(rate / other for rate, other in zip(found, rates[base], strict=True))
        medians[name] = statistics.median(ratios)
        print(
            f"{name:{width}}  {statistics.median(found):12.3f}  {min(found):9.3f} {max(found):9.3f}"
            f"    {medians[name]:.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}), {_shown(works[name], works[base])}"
        )
    return medians


def _shown(works: list[float], base: list[float]) -> str:
    ratios = sorted(work / other for work, other in zip(works, base, strict=True))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def _processor_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
