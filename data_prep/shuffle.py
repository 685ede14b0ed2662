"""Shuffles a stream within bounded memory, the same way on every Python version.

Of Python's generators only `random.Random(seed).random()` is promised to repeat across versions; nothing else of
that module, and nothing of NumPy's, is used. A golden vector in the tests pins the order.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["shuffled"]

Item = TypeVar("Item")


def shuffled(items: Iterable[Item], *, seed: int, buffer: int) -> Iterator[Item]:
    """Yield every item once, in an order drawn from a buffer of at most `buffer` items; 1 keeps the order.

    Once the buffer is full, each further item takes the place of one drawn from it; what is left at the end is
    drawn without replacement.
    """
    draw = random.Random(seed).random
    held: list[Item] = []
    for item in items:
        if len(held) < buffer:
            held.append(item)
            continue
        index = int(draw() * buffer)
        yield held[index]
        held[index] = item
    while held:
        index = int(draw() * len(held))
        held[index], held[-1] = held[-1], held[index]
        yield held.pop()
