"""Documents inside sequences: where attention and loss stop."""

from __future__ import annotations

import numpy as np
import pytest

from ledger.dataset.evaluation import evaluation_batches
from ledger.dataset.order import Geometry
from ledger.dataset.packing import document_layout
from ledger.dataset.reader import Reader
from ledger.dataset.shuffle import Shuffle
from ledger.dataset.source import Source
from tests.ledger.dataset.builders import EOS, build_dataset, documents
from tests.support.streams import Stream


def test_a_layout_written_out():
    """Documents end behind tokens 2, 3 and 8 of the stream: the sequence from 1 holds the ends of three."""
    stream = Stream(20, document_ends=[2, 3, 8, 20])
    layout = document_layout(stream, starts=[1], length=8)
    assert layout.documents.tolist() == [[0, 1, 2, 2, 2, 2, 2, 3]]
    assert layout.counted.tolist() == [[False, False, True, True, True, True, False, True]]
    assert layout.positions.tolist() == [[0, 0, 0, 1, 2, 3, 4, 0]]
    assert layout.loss_tokens == 5


def test_an_end_at_the_last_target_is_a_boundary_and_one_at_the_first_input_is_none():
    stream = Stream(20, document_ends=[4, 8, 20])
    layout = document_layout(stream, starts=[4], length=4)
    assert layout.documents.tolist() == [[0, 0, 0, 0]]
    assert layout.counted.tolist() == [[True, True, True, False]]


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    directory = tmp_path_factory.mktemp("packing") / "data"
    return build_dataset(directory, splits={"train": documents(60)}, shard_tokens=23).split("train")


@pytest.mark.parametrize("shuffle", [None, Shuffle(2, 1)])
def test_a_position_is_left_out_if_and_only_if_its_input_ends_a_document(split, shuffle):
    source = Source(split, name="train", geometry=Geometry(3, 7), shuffle=shuffle, packing="documents")
    reader = Reader([source])
    for _ in range(source.order.microbatches_per_epoch + 3):
        batch = reader.next()
        ends = batch.inputs == EOS
        assert batch.layout is not None
        assert np.array_equal(~batch.layout.counted, ends)
        assert batch.loss_tokens == batch.tokens - int(ends.sum())
        behind = np.zeros_like(batch.layout.documents)
        behind[:, 1:] = np.cumsum(ends[:, :-1], axis=1)
        assert np.array_equal(batch.layout.documents, behind)
    reader.close()


def test_packing_changes_neither_bytes_nor_cursors(split):
    readers = [
        Reader([Source(split, name="train", geometry=Geometry(3, 7), packing=packing)])
        for packing in ("stream", "documents")
    ]
    for _ in range(20):
        plain, packed = (reader.next() for reader in readers)
        assert (plain.digest, plain.cursor) == (packed.digest, packed.cursor)
        assert plain.layout is None
        assert plain.loss_tokens == plain.tokens


def test_ends_are_found_across_shards_and_in_shards_without_any(tmp_path):
    long = [[1] * 70 + [EOS], [2, EOS], [3] * 40 + [EOS]]
    split = build_dataset(tmp_path / "data", splits={"train": long}, shard_tokens=16).split("train")
    assert split.document_ends().tolist() == [71, 73, 114]
    for start in range(114):
        for stop in range(start + 1, 115, 7):
            expected = [end for end in (71, 73, 114) if start < end <= stop]
            assert split.ends_in(start, stop).tolist() == expected


def test_evaluation_batches_know_their_documents(split):
    batches = list(evaluation_batches(split, micro_batch=2, sequence=9, packing="documents"))
    assert sum(batch.tokens for batch in batches) == split.tokens - 1
    for batch in batches:
        assert batch.layout is not None
        assert np.array_equal(~batch.layout.counted, batch.inputs == EOS)
