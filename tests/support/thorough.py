"""How much a long search tries: a share that minutes allow, or everything that there is (`make faults`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final, TypeVar

__all__ = ["IS_THOROUGH", "share", "spread"]

T = TypeVar("T")

IS_THOROUGH: Final = os.environ.get("FAULTS") == "all"
"""Whether searches leave nothing out."""


def share(items: Sequence[T], *, most: int) -> list[T]:
    """Return so many items at even distances, or all where nothing is to be left out."""
    return list(items) if IS_THOROUGH else spread(items, most, first=0)


def spread(items: Sequence[T], count: int, *, first: int) -> list[T]:
    """Return at most `count` items at even distances; `first` is the place to begin at, counted around."""
    count = min(count, len(items))
    return [items[(first + index * len(items) // count) % len(items)] for index in range(count)]
