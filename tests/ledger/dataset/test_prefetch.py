"""Fetching ahead leaves no trace: neither in the bytes nor in the cursors."""

from __future__ import annotations

import numpy as np
import pytest

from ledger.dataset.mix import MixLaw
from ledger.dataset.order import Geometry
from ledger.dataset.prefetch import PrefetchingReader
from ledger.dataset.reader import Reader
from ledger.dataset.shuffle import Shuffle
from ledger.dataset.source import Source
from ledger.errors import RefusedError, StorageError, UsageError
from ledger.records.parts import Position
from tests.support.streams import Stream


def mixed() -> Reader:
    sources = [
        Source(Stream(tokens, shard_tokens=13), name=name, geometry=Geometry(2, 3), shuffle=Shuffle(2, 1))
        for name, tokens in (("a", 80), ("b", 50))
    ]
    return Reader(sources, law=MixLaw({"a": 2.0, "b": 1.0}, seed=0))


@pytest.mark.parametrize("ahead", [1, 2, 7])
def test_bytes_and_cursors_are_those_without_it(ahead):
    plain, ahead_reader = mixed(), PrefetchingReader(mixed(), ahead=ahead)
    for _ in range(60):
        expected, found = plain.next(), ahead_reader.next()
        assert found.digest == expected.digest
        assert np.array_equal(found.sequences, expected.sequences)
        assert found.cursor == expected.cursor == ahead_reader.cursor == plain.cursor
    ahead_reader.close()


def test_what_was_fetched_and_not_handed_out_is_not_consumed():
    stream = Stream(200)
    reader = PrefetchingReader(Reader([Source(stream, name="train", geometry=Geometry(1, 4))]), ahead=5)
    first = reader.next()
    assert [future.result().position.offset for future in reader._waiting] == [4, 8, 12, 16, 20]
    reader.restore(reader.cursor)
    assert stream.reads == 6
    assert reader.cursor == {"train": Position(0, 4)} == first.cursor
    assert reader.next().position == Position(0, 4)
    reader.close()


def test_a_restored_reader_goes_on_as_one_that_never_stopped():
    plain = mixed()
    cursors = [plain.cursor] + [plain.next().cursor for _ in range(25)]
    reader = PrefetchingReader(mixed(), ahead=3)
    for stop in (17, 0, 25, 4):
        reader.restore(cursors[stop])
        assert reader.cursor == cursors[stop]
        if stop < 25:
            assert reader.next().cursor == cursors[stop + 1]
    reader.close()


def test_a_cursor_that_is_refused_leaves_the_reader_where_it_was():
    reader = PrefetchingReader(mixed(), ahead=2)
    before = reader.next().cursor
    with pytest.raises(RefusedError):
        reader.restore({"a": Position(0, 1), "b": Position(0, 0)})
    assert reader.cursor == before
    reader.close()


def test_an_error_comes_out_where_its_microbatch_is_due_and_nowhere_before():
    class Broken(Stream):
        def read(self, start, *, count):
            if start == 12:
                raise StorageError("gone", path="train-00000.npy")
            return super().read(start, count=count)

    reader = PrefetchingReader(Reader([Source(Broken(200), name="train", geometry=Geometry(1, 4))]), ahead=4)
    for _ in range(3):
        reader.next()
    with pytest.raises(StorageError, match="gone"):
        reader.next()
    assert reader.cursor == {"train": Position(0, 12)}
    reader.close()


def test_fetching_nothing_ahead_is_no_prefetch():
    with pytest.raises(UsageError):
        PrefetchingReader(mixed(), ahead=0)
