"""Laws of reading in shuffled groups, of mixes and of packing: for any source, geometry and stop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.dataset.mix import MixLaw
from ledger.dataset.order import Geometry
from ledger.dataset.packing import Packing
from ledger.dataset.prefetch import PrefetchingReader
from ledger.dataset.reader import Reader
from ledger.dataset.shuffle import GroupTable, Shuffle
from ledger.dataset.source import Microbatch, Source
from tests.support.streams import Stream


@dataclass(frozen=True)
class Plan:
    """What is read, and how."""

    tokens: tuple[int, ...]
    """Of each source."""
    shard_tokens: int
    geometry: Geometry
    shuffle: Shuffle | None
    repeat: int | None
    packing: Packing
    seed: int

    def reader(self, *, scattered: bool = False) -> Reader:
        sources = [
            Source(
                Stream(tokens, shard_tokens=self.shard_tokens, document_ends=range(3, tokens + 1, 7)),
                name=f"source{index}",
                geometry=self.geometry,
                repeat=self.repeat,
                shuffle=self.shuffle,
                packing=self.packing,
                scattered=scattered,
            )
            for index, tokens in enumerate(self.tokens)
        ]
        weights = {source.name: 1.0 + index for index, source in enumerate(sources)}
        return Reader(sources, law=MixLaw(weights, seed=self.seed) if len(sources) > 1 else None)


@st.composite
def plans(draw, *, max_sources: int = 3):
    geometry = Geometry(draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.integers(1, 2)))
    whole = draw(st.lists(st.integers(1, 8), min_size=1, max_size=max_sources))
    tail = draw(st.integers(0, geometry.tokens - 1))
    return Plan(
        tokens=tuple(count * geometry.tokens + 1 + tail for count in whole),
        shard_tokens=draw(st.integers(2, 40)),
        geometry=geometry,
        shuffle=draw(st.none() | st.builds(Shuffle, st.integers(1, 3), st.integers(0, 5))),
        repeat=draw(st.none() | st.integers(1, min(whole))) if len(whole) == 1 else None,
        packing=draw(st.sampled_from(["stream", "documents"])),
        seed=draw(st.integers(0, 5)),
    )


def assert_equal(found: Microbatch, expected: Microbatch) -> None:
    assert (found.source, found.position, found.cursor) == (
        expected.source,
        expected.position,
        expected.cursor,
    )
    assert found.digest == expected.digest
    assert np.array_equal(found.sequences, expected.sequences)
    assert found.loss_tokens == expected.loss_tokens
    if expected.layout is not None:
        assert found.layout is not None
        assert np.array_equal(found.layout.documents, expected.layout.documents)
        assert np.array_equal(found.layout.counted, expected.layout.counted)


@settings(max_examples=60)
@given(plan=plans(), before=st.integers(0, 25), after=st.integers(1, 10), ahead=st.integers(0, 3))
def test_reading_on_from_any_cursor_is_reading_without_a_stop(plan, before, after, ahead):
    straight = plan.reader()
    for _ in range(before):
        straight.next()
    resumed = PrefetchingReader(plan.reader(), ahead=ahead) if ahead else plan.reader()
    resumed.restore(straight.cursor)
    for _ in range(after):
        assert_equal(resumed.next(), straight.next())
    assert resumed.cursor == straight.cursor
    resumed.close()
    straight.close()


@settings(max_examples=60)
@given(plan=plans(), microbatch=st.integers(0, 40))
def test_any_microbatch_alone_is_the_one_in_the_row(plan, microbatch):
    reader, scattered = plan.reader(), plan.reader(scattered=True)
    for _ in range(microbatch):
        reader.next()
    assert reader.cursor == scattered.cursor_at(microbatch)
    assert scattered.microbatch_of(reader.cursor) == microbatch
    assert_equal(scattered.microbatch_at(microbatch), reader.next())
    reader.close()


@settings(max_examples=40)
@given(plan=plans(max_sources=1), epoch=st.integers(0, 2))
def test_an_epoch_reads_each_usable_sequence_once_in_whole_groups(plan, epoch):
    reader = plan.reader()
    order = reader.sources["source0"].order
    reader.restore({"source0": order.position_of(epoch * order.microbatches_per_epoch)})
    batches = [reader.next() for _ in range(order.microbatches_per_epoch)]
    starts = np.concatenate([batch.starts for batch in batches])
    length = plan.geometry.sequence
    if plan.repeat is None:
        assert sorted(starts.tolist()) == list(range(0, order.usable_tokens, length))
    assert len(set(starts.tolist())) == starts.size
    if plan.shuffle is not None:
        groups = starts // (plan.shard_tokens * plan.shuffle.group_shards)
        assert (np.diff(groups) >= 0).all()
    for batch in batches:
        stream = Stream(plan.tokens[0])
        for row, start in zip(batch.sequences, batch.starts, strict=True):
            assert np.array_equal(row, stream.read(int(start), count=length + 1))
    reader.close()


@settings(max_examples=40)
@given(plan=plans(max_sources=1), shorter=st.integers(1, 30))
def test_a_repeated_source_is_the_same_in_every_epoch_also_when_shuffled(plan, shorter):
    if plan.repeat is None:
        return
    reader = plan.reader()
    digests = [reader.next().digest for _ in range(plan.repeat + shorter)]
    assert all(digest == digests[index % plan.repeat] for index, digest in enumerate(digests))
    reader.close()


@given(plan=plans(), count=st.integers(1, 60))
def test_the_sources_consumed_what_the_microbatches_held(plan, count):
    reader = plan.reader()
    at = reader.cursor_at(count)
    consumed = {
        name: position.epoch * reader.sources[name].order.usable_tokens + position.offset
        for name, position in at.items()
    }
    assert sum(consumed.values()) == count * plan.geometry.tokens
    reader.close()


@given(
    shards=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    group_shards=st.integers(1, 4),
    sequence=st.integers(1, 9),
    dropped=st.integers(0, 3),
)
def test_groups_partition_the_sequences_in_file_order(shards, group_shards, sequence, dropped):
    sequences = max(1, (sum(shards) - 1) // sequence - dropped)
    table = GroupTable(shards, group_shards=group_shards, sequence=sequence, sequences=sequences)
    bounds = [table.bounds(group) for group in range(-(-len(shards) // group_shards))]
    assert bounds[0][0] == 0
    assert [end for _, end in bounds[:-1]] == [first for first, _ in bounds[1:]]
    assert bounds[-1][1] == sequences
    for slot in range(sequences):
        first, end = bounds[table.group_of(slot)]
        assert first <= slot < end


@given(groups=st.integers(2, 5), more=st.integers(1, 60), seed=st.integers(0, 9), epoch=st.integers(0, 2))
def test_a_longer_source_reads_the_whole_groups_of_a_shorter_one_as_its_prefix(groups, more, seed, epoch):
    shuffle, geometry = Shuffle(2, seed), Geometry(1, 4)
    short, long = (
        Source(Stream(tokens, shard_tokens=10), name="train", geometry=geometry, shuffle=shuffle)
        for tokens in (20 * groups, 20 * groups + more)
    )
    for index in range(20 * (groups - 1) // 4):
        position = short.order.position_of(epoch * short.order.microbatches_per_epoch + index)
        assert short.microbatch_at(position).digest == long.microbatch_at(position).digest
    short.close()
    long.close()
