"""Microbatches: their content, their digest as the records define it, and the cursor behind them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from ledger.dataset.digest import advance_data_chain
from ledger.dataset.evaluation import evaluation_batches
from ledger.dataset.order import Geometry, ReadingOrder
from ledger.dataset.reader import Reader
from ledger.dataset.source import Source
from ledger.errors import EvidenceMissingError, RefusedError, UsageError
from ledger.records.fields import FIRST_DATA_CHAIN
from ledger.records.parts import Position
from tests.ledger.dataset.builders import build_dataset, documents

GOLDEN_CHAIN = "e7e4cb3f9caf29eaf000244441178eb0ce6c16fadc094c13fb62407268fa44a3"


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reader") / "data"
    return build_dataset(directory, splits={"train": documents(60)}).split("train")


@pytest.fixture(scope="module")
def stream(split):
    return split.read(0, count=split.tokens)


def reader(split, *, position=None, **options) -> Reader:
    source = Source(split, name="train", **{"geometry": Geometry(2, 8)} | options)
    return Reader([source], cursor=position and {"train": position})


def order_of(batches: Reader) -> ReadingOrder:
    return batches.sources["train"].order


def test_targets_are_the_inputs_moved_by_one_through_the_whole_stream(split, stream):
    batches = reader(split)
    for index in range(order_of(batches).microbatches_per_epoch):
        batch = batches.next()
        first = index * 16
        assert batch.inputs.reshape(-1).tolist() == stream[first : first + 16].tolist()
        assert batch.targets.reshape(-1).tolist() == stream[first + 1 : first + 17].tolist()
        assert batch.tokens == 16
        assert batch.inputs.shape == batch.targets.shape == (2, 8)


def test_the_digest_covers_every_sequence_with_its_last_target_by_rank(split, stream):
    batch = reader(split, geometry=Geometry(2, 8, data_parallel=2)).next()
    shares = []
    for rank in (0, 1):
        rows = [stream[8 * row : 8 * row + 9] for row in (2 * rank, 2 * rank + 1)]
        data = b"".join(row.astype("<u2").tobytes() for row in rows)
        shares.append(hashlib.sha256(data).digest())
        assert batch.share(rank).tolist() == np.array(rows).tolist()
    assert batch.digest == hashlib.sha256(b"".join(shares)).digest()


def test_the_digest_of_one_rank_still_goes_through_the_table_of_ranks(split, stream):
    rows = b"".join(stream[8 * row : 8 * row + 9].tobytes() for row in (0, 1))
    assert reader(split).next().digest == hashlib.sha256(hashlib.sha256(rows).digest()).digest()


def test_digests_are_pinned(split):
    """Golden: a change here changes what every recorded run claims to have read."""
    batches = reader(split)
    chain = FIRST_DATA_CHAIN
    for _ in range(3):
        chain = advance_data_chain(chain, digest=batches.next().digest)
    assert chain == GOLDEN_CHAIN


def test_the_chain_is_over_raw_bytes():
    digest = bytes(range(32))
    expected = hashlib.sha256(bytes.fromhex(FIRST_DATA_CHAIN) + digest).hexdigest()
    assert advance_data_chain(FIRST_DATA_CHAIN, digest=digest) == expected


def test_the_cursor_stands_behind_the_batch_that_was_returned(split):
    batches = reader(split)
    assert batches.cursor == {"train": Position(0, 0)}
    assert batches.next().cursor == {"train": Position(0, 16)}
    assert batches.cursor == {"train": Position(0, 16)}


def test_an_exhausted_split_begins_again_and_its_tail_is_dropped(split):
    batches = reader(split)
    per_epoch = order_of(batches).microbatches_per_epoch
    first_epoch = [batches.next() for _ in range(per_epoch)]
    assert first_epoch[-1].cursor == {"train": Position(1, 0)}
    assert [batches.next().digest for _ in range(per_epoch)] == [batch.digest for batch in first_epoch]
    order = order_of(batches)
    assert order.usable_tokens + order.dropped_tokens == split.tokens - 1
    assert 0 <= order.dropped_tokens < 16


def test_a_repeated_source_is_its_first_microbatches(split):
    batches = reader(split, repeat=2)
    digests = [batches.next().digest for _ in range(6)]
    plain = reader(split)
    assert digests == [plain.next().digest, plain.next().digest] * 3
    assert batches.cursor == {"train": Position(3, 0)}


def test_a_last_target_is_needed():
    geometry = Geometry(1, 8)
    assert ReadingOrder(17, geometry).microbatches_per_epoch == 2
    assert ReadingOrder(16, geometry).microbatches_per_epoch == 1
    with pytest.raises(EvidenceMissingError, match="8 tokens"):
        ReadingOrder(8, geometry)


def test_too_little_for_repeat_is_refused():
    with pytest.raises(EvidenceMissingError, match="at least 3"):
        ReadingOrder(17, Geometry(1, 8), repeat=3)


@pytest.mark.parametrize("position", [Position(0, 3), Position(0, 17), Position(0, 10_000), Position(2, 8)])
def test_a_position_of_another_geometry_is_refused(position, split):
    with pytest.raises(RefusedError, match="no position of this source"):
        reader(split, position=position)


def test_a_cursor_of_other_sources_is_refused(split):
    with pytest.raises(RefusedError, match="validation"):
        reader(split).restore({"validation": Position(0, 0)})


@pytest.mark.parametrize("shape", [(0, 8, 1), (2, 0, 1), (2, 8, 0)])
def test_a_geometry_of_nothing_is_refused(shape):
    with pytest.raises(UsageError):
        Geometry(*shape)


def test_a_microbatch_by_its_number_is_what_the_reader_returned(split):
    batches = reader(split)
    order = order_of(batches)
    for index in range(order.microbatches_per_epoch + 2):
        batch = batches.next()
        again = batches.microbatch_at(index)
        assert (again.digest, again.cursor) == (batch.digest, batch.cursor)
        assert order.microbatch_at(batch.position) == index


@pytest.mark.parametrize(("micro_batch", "sequence"), [(2, 8), (3, 7), (1, 1), (100, 100), (5, 16)])
def test_a_whole_evaluation_measures_every_target_once(micro_batch, sequence, split, stream):
    batches = list(evaluation_batches(split, micro_batch=micro_batch, sequence=sequence))
    inputs = [token for batch in batches for token in batch.inputs.reshape(-1).tolist()]
    targets = [token for batch in batches for token in batch.targets.reshape(-1).tolist()]
    assert inputs == stream[:-1].tolist()
    assert targets == stream[1:].tolist()


def test_a_limited_evaluation_is_whole_batches_from_the_start(split, stream):
    batches = list(evaluation_batches(split, micro_batch=2, sequence=8, batches=3))
    assert [batch.tokens for batch in batches] == [16, 16, 16]
    assert batches[2].inputs.reshape(-1).tolist() == stream[32:48].tolist()
