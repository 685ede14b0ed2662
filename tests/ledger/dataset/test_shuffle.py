"""The law of shuffle groups."""

from __future__ import annotations

import hashlib
from random import Random

import numpy as np
import pytest

from ledger.dataset.groups import GroupedSequences, ScatteredSequences
from ledger.dataset.order import Geometry, ReadingOrder
from ledger.dataset.shuffle import GroupTable, Shuffle, sequence_order
from ledger.errors import StorageError, UsageError
from tests.support.streams import Stream

GOLDEN_FIRST = [1, 3, 4, 8, 6, 10, 0, 5, 9, 2, 7, 11]
GOLDEN_NEXT_EPOCH = [0, 7, 2, 4, 9, 5, 3, 1, 6, 8, 11, 10]
GOLDEN_LONG = "7ee6125003d0008370497236627f35dec32074a50a2b5576b23aac186d704a31"
ORDER = ReadingOrder(200, Geometry(3, 5))
"""Thirteen microbatches of three sequences: 39 sequences."""


def test_the_order_is_pinned():
    """Golden: a change here changes what every shuffled run reads."""
    assert sequence_order(seed=7, epoch=0, group=0, sequences=12).tolist() == GOLDEN_FIRST
    assert sequence_order(seed=7, epoch=1, group=0, sequences=12).tolist() == GOLDEN_NEXT_EPOCH
    order = sequence_order(seed=0, epoch=3, group=2, sequences=100_000)
    assert hashlib.sha256(order.astype("<u4").tobytes()).hexdigest() == GOLDEN_LONG


def test_the_order_follows_from_the_law_as_it_is_written():
    key = hashlib.sha256(b"ledger-shuffle-v1\n5\n2\n9").digest()[:8]
    draw = Random(int.from_bytes(key, "big"))
    draws = [draw.random() for _ in range(50)]
    expected = sorted(range(50), key=lambda sequence: (draws[sequence], sequence))
    assert sequence_order(seed=5, epoch=2, group=9, sequences=50).tolist() == expected


def test_seed_epoch_and_group_each_change_the_order():
    orders = {
        tuple(sequence_order(seed=seed, epoch=epoch, group=group, sequences=30).tolist())
        for seed in (0, 1)
        for epoch in (0, 1)
        for group in (0, 1)
    }
    assert len(orders) == 8


def test_a_sequence_belongs_to_the_group_that_holds_its_first_token():
    table = GroupTable([12, 7, 30, 4, 6], group_shards=2, sequence=5, sequences=11)
    assert [table.bounds(group) for group in range(3)] == [(0, 4), (4, 11), (11, 11)]
    assert [table.group_of(slot) for slot in (0, 3, 4, 10)] == [0, 0, 1, 1]


def test_a_group_without_a_sequence_is_passed_over():
    table = GroupTable([3, 2, 20], group_shards=1, sequence=5, sequences=4)
    assert [table.bounds(group) for group in range(3)] == [(0, 1), (1, 1), (1, 4)]
    assert [table.group_of(slot) for slot in range(4)] == [0, 2, 2, 2]


@pytest.mark.parametrize("arguments", [(0, 1), (2, -1)])
def test_a_shuffle_that_makes_no_sense_is_refused(arguments):
    with pytest.raises(UsageError):
        Shuffle(*arguments)


def test_every_sequence_is_read_once_an_epoch_and_stays_in_its_group():
    stream = Stream(200, shard_tokens=40)
    grouped = GroupedSequences(stream, order=ORDER, shuffle=Shuffle(2, 3))
    starts = np.concatenate([grouped.rows(0, slot=slot, count=3).starts for slot in range(0, 39, 3)])
    assert sorted(starts.tolist()) == list(range(0, 195, 5))
    assert {start // 80 for start in starts[:16]} == {0}
    assert {start // 80 for start in starts[16:32]} == {1}
    grouped.close()


def test_two_groups_at_most_are_in_memory_and_each_is_read_once_an_epoch():
    stream = Stream(200, shard_tokens=40)
    grouped = GroupedSequences(stream, order=ORDER, shuffle=Shuffle(1, 3))
    held = []
    for slot in range(0, 39, 3):
        grouped.rows(0, slot=slot, count=3)
        held.append(len(grouped._loading))
    assert max(held) == 2
    grouped.close()
    assert stream.reads <= 6


def test_one_by_one_reads_what_group_by_group_reads():
    stream, shuffle = Stream(200, shard_tokens=40), Shuffle(2, 3)
    grouped = GroupedSequences(stream, order=ORDER, shuffle=shuffle)
    scattered = ScatteredSequences(stream, order=ORDER, shuffle=shuffle)
    for epoch in (0, 1):
        for slot in range(0, 39, 3):
            expected, found = (
                sequences.rows(epoch, slot=slot, count=3) for sequences in (grouped, scattered)
            )
            assert np.array_equal(found.sequences, expected.sequences)
            assert np.array_equal(found.starts, expected.starts)
    grouped.close()


def test_a_group_that_cannot_be_read_is_an_error_where_it_is_needed():
    class Broken(Stream):
        def read(self, start, *, count):
            if start >= 80:
                raise StorageError("gone", path="train-00002.npy")
            return super().read(start, count=count)

    grouped = GroupedSequences(Broken(200, shard_tokens=40), order=ORDER, shuffle=Shuffle(2, 3))
    grouped.rows(0, slot=0, count=3)
    grouped.rows(0, slot=12, count=3)
    with pytest.raises(StorageError, match="train-00002"):
        grouped.rows(0, slot=15, count=3)
    grouped.close()
