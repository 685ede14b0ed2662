"""Does one thing to many parts of a dataset on all cores: results in the order of the parts, few of them at a time.

Threads serve, since reading, hashing and comparing arrays all happen outside Python's lock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["map_in_order"]

_Part = TypeVar("_Part")
_Result = TypeVar("_Result")


def map_in_order(
    function: Callable[[_Part], _Result], parts: Iterable[_Part], *, workers: int | None = None
) -> Iterator[_Result]:
    """Yield what a function makes of each part; raises what it raises, in its turn.

    Args:
        function: called in several threads at once.
        parts: taken as they are needed, one more than there are threads ahead of what was yielded.
        workers: threads; null: one a core.
    """
    count = workers or os.cpu_count() or 1
    ahead: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(max_workers=count, thread_name_prefix="ledger-parts") as pool:
        try:
            for part in parts:
                ahead.append(pool.submit(function, part))
                if len(ahead) > count:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
