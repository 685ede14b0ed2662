"""Many parts on all cores: in order, few at a time, an error in its turn."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ledger.dataset.parallel import map_in_order


def test_results_come_in_the_order_of_the_parts():
    assert list(map_in_order(lambda part: part * 2, range(50), workers=3)) == list(range(0, 100, 2))


def test_parts_are_taken_as_they_are_needed():
    taken: list[int] = []

    def parts() -> Iterator[int]:
        for part in range(100):
            taken.append(part)
            yield part

    found = map_in_order(str, parts(), workers=2)
    assert [next(found), next(found)] == ["0", "1"]
    assert len(taken) <= 5


def test_work_is_done_in_several_threads_at_once():
    both = threading.Barrier(2, timeout=10)
    assert len(list(map_in_order(lambda _: both.wait(), range(2), workers=2))) == 2


def test_an_error_is_raised_in_its_turn():
    found = map_in_order(lambda part: 1 // (part - 2), range(5), workers=4)
    assert [next(found), next(found)] == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(found)
