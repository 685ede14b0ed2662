"""Laws of shards: cutting a token stream loses nothing, whatever the shard size."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.dataset.order import Geometry
from ledger.dataset.reader import Reader
from ledger.dataset.source import Source
from ledger.dataset.verify import check_tokens, verify_dataset
from tests.ledger.dataset.builders import EOS, build_dataset

TEXTS = st.lists(
    st.lists(st.integers(1, 299), max_size=30).map(lambda ids: [*ids, EOS]), min_size=1, max_size=20
)


@settings(max_examples=20)
@given(documents=TEXTS, shard_tokens=st.integers(4, 70))
def test_concatenated_shards_are_the_concatenated_documents(documents, shard_tokens):
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "data"
        dataset = build_dataset(directory, splits={"train": documents}, shard_tokens=shard_tokens)
        split = dataset.split("train")
        stream = [token for document in documents for token in document]
        assert split.read(0, count=split.tokens).tolist() == stream
        ends = split.document_ends().astype(int).tolist()
        starts = [0, *ends[:-1]]
        assert [stream[start:end] for start, end in zip(starts, ends, strict=True)] == documents
        assert verify_dataset(directory).errors == ()
        assert not list(check_tokens(directory))


@settings(max_examples=12)
@given(documents=TEXTS, sizes=st.tuples(st.integers(4, 60), st.integers(4, 60)))
def test_microbatch_digests_do_not_depend_on_the_shard_size(documents, sizes):
    if sum(map(len, documents)) < 10:
        return
    digests = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            splits = {"train": documents}
            split = build_dataset(Path(folder) / "data", splits=splits, shard_tokens=size).split("train")
            reader = Reader([Source(split, name="train", geometry=Geometry(1, 3))])
            digests.append([reader.next().digest for _ in range(8)])
    assert digests[0] == digests[1]


@settings(max_examples=20)
@given(documents=TEXTS, shard_tokens=st.integers(4, 70), start=st.integers(0, 100), count=st.integers(1, 100))
def test_any_range_reads_as_from_one_array(documents, shard_tokens, start, count):
    stream = np.array([token for document in documents for token in document])
    start %= stream.size
    count = min(count, stream.size - start)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "data"
        dataset = build_dataset(directory, splits={"train": documents}, shard_tokens=shard_tokens)
        found = dataset.split("train").read(start, count=count)
    assert found.tolist() == stream[start : start + count].tolist()
