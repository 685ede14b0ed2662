"""Laws of reading: for any split, geometry and repeat."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.dataset.order import Geometry, ReadingOrder
from ledger.dataset.reader import Reader
from ledger.dataset.source import Source
from ledger.errors import RefusedError
from ledger.records.parts import Position
from tests.support.streams import Stream


@st.composite
def orders(draw):
    geometry = Geometry(draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.integers(1, 3)))
    whole = draw(st.integers(1, 12))
    tokens = whole * geometry.tokens + 1 + draw(st.integers(0, geometry.tokens - 1))
    repeat = draw(st.none() | st.integers(1, whole))
    return ReadingOrder(tokens, geometry, repeat)


def reader(order: ReadingOrder, position: Position = Position(0, 0)) -> Reader:  # noqa: B008 - immutable
    stream = Stream(order.source_tokens)
    source = Source(stream, name="train", geometry=order.geometry, repeat=order.repeat)
    return Reader([source], cursor={"train": position})


@given(order=orders(), count=st.integers(1, 40))
def test_what_was_consumed_is_epochs_times_usable_tokens_plus_offset(order, count):
    batches = reader(order)
    consumed = sum(batches.next().tokens for _ in range(count))
    position = batches.cursor["train"]
    assert consumed == position.epoch * order.usable_tokens + position.offset
    assert position == order.position_of(count)


@given(order=orders())
def test_usable_tokens_are_the_greatest_multiple_that_leaves_a_last_target(order):
    if order.repeat is None:
        assert order.usable_tokens % order.geometry.tokens == 0
        assert order.usable_tokens + 1 <= order.source_tokens
        assert order.usable_tokens + order.geometry.tokens + 1 > order.source_tokens
    else:
        assert order.usable_tokens == order.repeat * order.geometry.tokens


@given(order=orders(), before=st.integers(0, 30), after=st.integers(1, 15))
def test_reading_on_from_any_cursor_is_reading_without_a_stop(order, before, after):
    straight = reader(order)
    for _ in range(before):
        straight.next()
    resumed = reader(order, straight.cursor["train"])
    for _ in range(after):
        expected, found = straight.next(), resumed.next()
        assert found.digest == expected.digest
        assert found.cursor == expected.cursor
        assert np.array_equal(found.sequences, expected.sequences)


@given(order=orders(), count=st.integers(1, 30))
def test_positions_follow_each_other(order, count):
    positions = [order.position_of(index) for index in range(count + 1)]
    assert all(order.after(first) == second for first, second in pairwise(positions))
    assert [order.microbatch_at(position) for position in positions] == list(range(count + 1))


@given(order=orders(), epoch=st.integers(0, 3), offset=st.integers(0, 500))
def test_a_position_that_reading_never_reaches_is_refused(order, epoch, offset):
    reached = {order.position_of(index).offset for index in range(order.microbatches_per_epoch)}
    if offset in reached:
        order.validate(Position(epoch, offset))
    else:
        with pytest.raises(RefusedError):
            order.validate(Position(epoch, offset))


@given(order=orders(), ranks=st.integers(1, 3))
def test_ranks_partition_the_sequences_in_order(order, ranks):
    geometry = Geometry(order.geometry.micro_batch, order.geometry.sequence, ranks)
    whole = ReadingOrder(order.source_tokens * 3, geometry)
    batch = reader(whole).next()
    shares = np.concatenate([batch.share(rank) for rank in range(ranks)])
    assert np.array_equal(shares, batch.sequences)


@given(order=orders(), count=st.integers(1, 20))
def test_a_longer_source_reads_the_shorter_one_as_its_prefix(order, count):
    if order.repeat is not None:
        return
    longer = ReadingOrder(order.source_tokens + 7, order.geometry)
    shared = min(count, order.microbatches_per_epoch)
    short, long = reader(order), reader(longer)
    assert [short.next().digest for _ in range(shared)] == [long.next().digest for _ in range(shared)]
