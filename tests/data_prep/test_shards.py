"""The writer of shards: every shard but the last is full, and ends stand where their last token lies."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.shards import SplitWriter
from ledger.dataset.npy import read_array

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=25)


def write(directory: Path, lengths: list[int], *, shard_tokens: int):
    writer = SplitWriter(directory, name="train", dtype="uint16", shard_tokens=shard_tokens)
    for index, length in enumerate(lengths):
        writer.add(np.full(length, index, dtype=np.uint16), text_bytes=length)
    inventory = writer.finish()
    assert inventory is not None
    return inventory


@settings(max_examples=20)
@given(lengths=LENGTHS, shard_tokens=st.integers(3, 60))
def test_every_shard_but_the_last_is_full_and_together_they_are_the_documents(lengths, shard_tokens):
    with tempfile.TemporaryDirectory() as folder:
        inventory = write(Path(folder), lengths, shard_tokens=shard_tokens)
        shards = [read_array(Path(folder) / shard.file) for shard in inventory.shards]
    assert [shard.size for shard in shards[:-1]] == [shard_tokens] * (len(shards) - 1)
    assert 0 < shards[-1].size <= shard_tokens
    assert np.array_equal(np.concatenate(shards), np.repeat(np.arange(len(lengths)), lengths))
    assert (inventory.tokens, inventory.documents, inventory.bytes) == (
        sum(lengths),
        len(lengths),
        sum(lengths),
    )


@settings(max_examples=20)
@given(lengths=LENGTHS, shard_tokens=st.integers(3, 60))
def test_an_end_stands_beside_the_shard_that_holds_its_last_token(lengths, shard_tokens):
    with tempfile.TemporaryDirectory() as folder:
        inventory = write(Path(folder), lengths, shard_tokens=shard_tokens)
        found, start = [], 0
        for shard in inventory.shards:
            if shard.ends:
                ends = read_array(Path(folder) / shard.ends.file).astype(int).tolist()
                assert all(start < end <= start + shard.tokens for end in ends)
                assert len(ends) == shard.documents
                found += ends
            start += shard.tokens
    assert found == np.cumsum(lengths).tolist()


def test_a_writer_of_nothing_has_no_inventory(tmp_path):
    assert SplitWriter(tmp_path, name="train", dtype="uint16", shard_tokens=5).finish() is None
    assert list(tmp_path.iterdir()) == []
