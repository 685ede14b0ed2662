"""Which documents are stored: limits, exact duplicates, a validation source of its own, whole groups of shards."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from data_prep.pipeline import prepare
from data_prep.shuffle import shuffled
from data_prep.split import Splitter
from ledger.dataset.verify import verify_dataset
from ledger.errors import ConfigError, InvalidDocumentError, RefusedError
from tests.data_prep.corpus import configure, texts, write_jsonl
from tests.data_prep.reading import stored

LONG = "".join(str(n**3) for n in range(60, 300))[:840]


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "corpus.jsonl", [*texts(60), LONG, *texts(20)])


def test_a_document_that_is_too_long_is_an_error_and_never_cut(source, tmp_path):
    with pytest.raises(InvalidDocumentError, match=r"line 66: .* has 840 bytes, more than limits\.max_bytes"):
        prepare(configure(source, limits__max_bytes=300), output=tmp_path / "data")
    with pytest.raises(
        InvalidDocumentError, match=r"line 66: this document has \d+ tokens, more than limits"
    ):
        prepare(configure(source, limits__max_tokens=200), output=tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("limit", ["limits__max_bytes", "limits__max_tokens"])
def test_one_that_is_left_out_is_counted(limit, source, tmp_path):
    config = configure(source, limits__overflow="skip", **{limit: 300})
    manifest = prepare(config, output=tmp_path / "data").manifest
    found = stored(tmp_path / "data", "train") + stored(tmp_path / "data", "validation")
    assert manifest.left_out == {"empty": 2, "too_long": 1}
    assert sorted(found) == sorted(text for text in [*texts(60), *texts(20)] if text)
    assert manifest.preparation.length.overflow == "skip"


def test_a_limit_that_nothing_exceeds_changes_nothing(source, tmp_path):
    one = prepare(configure(source), output=tmp_path / "one").manifest
    two = prepare(configure(source, limits__max_bytes=840), output=tmp_path / "two").manifest
    assert one.splits == two.splits


def test_exact_duplicates_are_left_out_and_counted(source, tmp_path):
    manifest = prepare(configure(source, deduplicate=True), output=tmp_path / "data").manifest
    found = stored(tmp_path / "data", "train") + stored(tmp_path / "data", "validation")
    assert sorted(found) == sorted({text for text in [*texts(60), LONG] if text})
    assert manifest.left_out == {"empty": 2, "duplicate": 24}


def test_what_is_counted_ends_with_the_last_document_that_is_stored(tmp_path):
    source = write_jsonl(tmp_path / "corpus.jsonl", ["one", "", "one", "two two two", "", "three", ""])
    config = configure(
        source,
        deduplicate=True,
        train_tokens=9,
        split__validation_fraction=0,
        shuffle__buffer=1,
        tokenizer__sample_bytes=1,
    )
    manifest = prepare(config, output=tmp_path / "data").manifest
    assert stored(tmp_path / "data", "train")[-1] == "two two two"
    assert manifest.left_out == {"empty": 1, "duplicate": 1}


def test_a_given_validation_source_is_the_validation_split(source, tmp_path):
    held_out = write_jsonl(tmp_path / "held-out.jsonl", ["only here", *texts(3), "and here"])
    settings = {"validation_source.kind": "jsonl", "validation_source.files": json.dumps([str(held_out)])}
    manifest = prepare(configure(source, **settings), output=tmp_path / "data").manifest
    assert stored(tmp_path / "data", "validation") == [
        text for text in ["only here", *texts(3), "and here"] if text
    ]
    everything = [text for text in [*texts(60), LONG, *texts(20)] if text]
    assert sorted(stored(tmp_path / "data", "train")) == sorted(everything)
    assert manifest.preparation.split.rule == "given"
    assert manifest.validation_source is not None
    assert [file.name for file in manifest.validation_source.files] == ["held-out.jsonl"]
    assert manifest.shared == 2 * 7, "the seven texts that are in both, each twice in the source"
    assert prepare(configure(source, **settings), output=tmp_path / "data").outcome == "reused"
    write_jsonl(held_out, ["other"])
    with pytest.raises(RefusedError, match=r"validation_source\.files\[0\]\.sha256"):
        prepare(configure(source, **settings), output=tmp_path / "data")


def test_train_tokens_round_up_to_whole_groups_and_the_last_target(source, tmp_path):
    config = configure(source, train_tokens=700, shard_tokens=200, group_shards=2)
    manifest = prepare(config, output=tmp_path / "data").manifest
    assert manifest.preparation.train_tokens == 801
    assert manifest.splits["train"].tokens >= 801
    with pytest.raises(ConfigError, match="group_shards"):
        configure(source, group_shards=2)


def test_the_split_is_stable_under_added_sources(tmp_path):
    one, two = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    write_jsonl(one, texts(80))
    write_jsonl(two, [f"another {n}" for n in range(80)])
    splitter = Splitter(key="ledger", validation_fraction=0.2)
    prepare(configure(one), output=tmp_path / "one")
    prepare(configure(one, source__files=[str(two), str(one)]), output=tmp_path / "both")
    before = set(stored(tmp_path / "one", "validation"))
    after = set(stored(tmp_path / "both", "validation"))
    assert before == {text for text in texts(80) if text and splitter.assign(text.encode()) == "validation"}
    assert {text for text in after if not text.startswith("another")} == before


GOLDEN_BYTES = [2, 1, 4, 0, 3, 7, 6, 8, 9, 10, 12, 13, 5, 11, 14, 16, 15, 18, 19, 17, 20, 21, 22, 23, 24]


def test_the_order_of_a_buffer_bounded_by_bytes_is_pinned():
    """Golden: numbers are their own sizes, 40 in all are held."""
    found = shuffled(range(30), seed=7, buffer=100, buffer_bytes=40, size=lambda number: number)
    assert list(found)[:25] == GOLDEN_BYTES


def test_a_buffer_bounded_by_bytes_holds_no_more_than_they(source, tmp_path):
    held, most = 0, 0

    def numbers() -> Iterator[int]:
        nonlocal held, most
        for number in range(200):
            held += number % 17
            yield number % 17

    for number in shuffled(numbers(), seed=1, buffer=10**6, buffer_bytes=100, size=lambda size: size):
        most = max(most, held)
        held -= number
    assert most <= 100 + 16, "one more is read before one is yielded"
    one = prepare(configure(source), output=tmp_path / "one")
    two = prepare(configure(source, shuffle__buffer_bytes=400), output=tmp_path / "two")
    assert one.metadata_sha256 != two.metadata_sha256
    assert sorted(stored(tmp_path / "one", "train")) == sorted(stored(tmp_path / "two", "train"))
    assert verify_dataset(tmp_path / "two").problems == ()
