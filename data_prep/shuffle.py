"""Shuffles a stream within bounded memory, the same way on every Python version.

Of Python's generators only `random.Random(seed).random()` is promised to repeat across versions; nothing else of
that module, and nothing of NumPy's, is used. A golden vector in the tests pins the order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

__all__ = ["shuffled"]

Item = TypeVar("Item")


def shuffled(
    items: Iterable[Item],
    *,
    seed: int,
    buffer: int,
    buffer_bytes: int | None = None,
    size: Callable[[Item], int] = lambda _: 0,
) -> Iterator[Item]:
    """Yield every item once, in an order drawn from a bounded buffer; a buffer of 1 keeps the order.

    While a further item does not fit, one is drawn and yielded; the further item takes the place of the last one that
    had to go. What is left at the end is drawn without replacement.

    Args:
        items: what is shuffled.
        seed: another one makes another order.
        buffer: items held at most.
        buffer_bytes: their sizes together at most, unless one alone is greater; null: no bound.
        size: the size of an item.
    """
    draw = random.Random(seed).random
    bound = float("inf") if buffer_bytes is None else buffer_bytes
    held: list[Item] = []
    total = 0
    for item in items:
        needed = size(item)
        while held and (len(held) >= buffer or total + needed > bound):
            index = int(draw() * len(held))
            drawn = held[index]
            total -= size(drawn)
            yield drawn
            if len(held) <= buffer and total + needed <= bound:
                held[index] = item
                break
            held[index] = held[-1]
            held.pop()
        else:
            held.append(item)
        total += needed
    while held:
        index = int(draw() * len(held))
        held[index], held[-1] = held[-1], held[index]
        yield held.pop()
