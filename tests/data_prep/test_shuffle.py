"""The shuffle: a permutation within bounded memory that no Python version changes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from data_prep.shuffle import shuffled

GOLDEN_6 = [1, 0, 3, 7, 8, 2, 9, 10, 12, 11, 14, 16, 15, 4, 17, 6, 18, 13, 19, 5]
GOLDEN_100 = [3, 1, 6, 0, 4, 2, 8, 9, 5, 10, 11, 7]


def test_the_order_is_pinned():
    """Golden: another order would be another dataset for every seed."""
    assert list(shuffled(range(20), seed=7, buffer=6)) == GOLDEN_6
    assert list(shuffled(range(12), seed=7, buffer=100)) == GOLDEN_100


@given(count=st.integers(0, 60), seed=st.integers(0, 2**53 - 1), buffer=st.integers(1, 80))
def test_every_item_comes_once(count, seed, buffer):
    assert sorted(shuffled(range(count), seed=seed, buffer=buffer)) == list(range(count))


@given(count=st.integers(0, 60), seed=st.integers(0, 99))
def test_a_buffer_of_one_keeps_the_order(count, seed):
    assert list(shuffled(range(count), seed=seed, buffer=1)) == list(range(count))


@given(buffer=st.integers(1, 30), seed=st.integers(0, 99))
def test_nothing_comes_before_the_buffer_could_hold_it(buffer, seed):
    for place, item in enumerate(shuffled(range(90), seed=seed, buffer=buffer)):
        assert item <= place + buffer


def test_no_more_than_the_buffer_is_held():
    taken = 0

    def source() -> Iterator[int]:
        nonlocal taken
        for item in itertools.count():
            taken += 1
            yield item

    stream = shuffled(source(), seed=1, buffer=10)
    for yielded in range(1, 200):
        next(stream)
        assert taken - yielded <= 10


def test_seeds_differ():
    orders = {tuple(shuffled(range(30), seed=seed, buffer=30)) for seed in range(20)}
    assert len(orders) == 20
