"""The law of a mix."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from ledger.dataset.digest import advance_data_chain
from ledger.dataset.mix import MixLaw, mix_sha256
from ledger.dataset.order import Geometry
from ledger.dataset.reader import Reader
from ledger.dataset.shuffle import Shuffle
from ledger.dataset.source import Source
from ledger.errors import RefusedError, UsageError
from ledger.records.fields import FIRST_DATA_CHAIN
from ledger.records.parts import Position
from tests.support.streams import Stream

GOLDEN_CHOICES = "cbwcbwcwcwccwwwwwbcwbbcwwcbwwwcwwcccbwwb"
GOLDEN_LONG = "dec59924bd8d65f82bc9904d99d7a58a0e225e9c6d87196faa1ed812bed77b88"
GOLDEN_CHAIN = "4b70d962ffb243421c88082ce6b366ac9dd26f2d9af1f572a8ff67bcd39ef2ba"
WEIGHTS = {"web": 0.5, "code": 0.3, "books": 0.2}


def letters(law: MixLaw, start: int, *, count: int) -> str:
    return "".join(law.names[choice][0] for choice in law.choices(start, count=count))


def test_the_choices_are_pinned():
    """Golden: a change here changes what every mixed run reads."""
    law = MixLaw(WEIGHTS, seed=11)
    assert letters(law, 0, count=40) == GOLDEN_CHOICES
    digest = hashlib.sha256(law.choices(0, count=100_000).astype("u1").tobytes()).hexdigest()
    assert digest == GOLDEN_LONG


def test_the_choices_follow_from_the_law_as_it_is_written():
    law = MixLaw(WEIGHTS, seed=2)
    for microbatch in (0, 1, 1023, 1024, 5000):
        block, place = divmod(microbatch, 1024)
        stream = hashlib.shake_256(f"ledger-mix-v1\n2\n{block}".encode()).digest(8 * 1024)
        draw = (int.from_bytes(stream[8 * place :][:8], "little") >> 11) / 2**53
        expected = "books" if draw < 0.2 else "code" if draw < 0.5 else "web"
        assert law.source_at(microbatch) == expected


def test_shares_approach_the_weights_whatever_they_add_up_to():
    counts = MixLaw({name: 10 * weight for name, weight in WEIGHTS.items()}, seed=11).counts(0, count=100_000)
    assert counts == MixLaw(WEIGHTS, seed=11).counts(0, count=100_000)
    for name, weight in WEIGHTS.items():
        assert counts[name] / 100_000 == pytest.approx(weight, abs=0.006)


def test_the_order_in_which_sources_are_named_does_not_matter():
    backwards = dict(reversed(WEIGHTS.items()))
    assert letters(MixLaw(backwards, seed=4), 0, count=500) == letters(MixLaw(WEIGHTS, seed=4), 0, count=500)


def test_another_seed_chooses_otherwise():
    assert letters(MixLaw(WEIGHTS, seed=1), 0, count=50) != letters(MixLaw(WEIGHTS, seed=2), 0, count=50)


@pytest.mark.parametrize("start", [0, 1000, 1024, 3000])
def test_counts_are_sums_of_choices(start):
    law = MixLaw(WEIGHTS, seed=3)
    choices = [law.source_at(start + index) for index in range(200)]
    assert law.counts(start, count=200) == {name: choices.count(name) for name in law.names}
    assert law.counts(start, count=0) == dict.fromkeys(law.names, 0)


@pytest.mark.parametrize(
    "weights", [{}, {"a": 0.0}, {"a": -1.0, "b": 1.0}, {"a": float("inf")}, {"a": float("nan")}]
)
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(UsageError):
        MixLaw(weights, seed=0)


def test_the_identity_of_a_mix_names_its_sources():
    one = mix_sha256({"a": "0" * 64, "b": "1" * 64})
    assert one == mix_sha256({"b": "1" * 64, "a": "0" * 64})
    assert one != mix_sha256({"a": "1" * 64, "b": "0" * 64})


def mixed(**changes) -> Reader:
    sources = [
        Source(Stream(tokens), name=name, geometry=Geometry(2, 4))
        for name, tokens in (("books", 41), ("code", 65), ("web", 33))
    ]
    return Reader(sources, law=MixLaw(WEIGHTS | changes, seed=9))


def test_each_microbatch_reads_one_source_and_moves_it_alone():
    reader, law = mixed(), MixLaw(WEIGHTS, seed=9)
    for microbatch in range(60):
        before = reader.cursor
        batch = reader.next()
        assert batch.source == law.source_at(microbatch)
        moved = {name for name in before if before[name] != batch.cursor[name]}
        assert moved == {batch.source}


def test_the_sources_token_counts_add_up_to_what_was_read():
    reader = mixed()
    tokens = sum(reader.next().tokens for _ in range(60))
    per_source = {
        name: at.epoch * reader.sources[name].order.usable_tokens + at.offset
        for name, at in reader.cursor.items()
    }
    assert sum(per_source.values()) == tokens == 60 * 8
    assert per_source == {name: 8 * n for name, n in MixLaw(WEIGHTS, seed=9).counts(0, count=60).items()}


def test_a_cursor_that_the_law_never_reaches_is_refused():
    reader = mixed()
    for _ in range(10):
        reader.next()
    cursor = reader.cursor
    source = next(name for name, at in cursor.items() if at.offset)
    moved = cursor | {source: Position(cursor[source].epoch, cursor[source].offset - 8)}
    with pytest.raises(RefusedError, match="weights and the seed"):
        mixed().restore(moved)
    with pytest.raises(RefusedError, match="weights and the seed"):
        mixed(web=50.0).restore(cursor)


def test_a_mix_needs_the_sources_that_its_law_names():
    source = Source(Stream(41), name="books", geometry=Geometry(2, 4))
    with pytest.raises(UsageError):
        Reader([source], law=MixLaw(WEIGHTS, seed=0))
    with pytest.raises(UsageError):
        Reader([source, source])


def test_a_law_over_one_source_reads_it_alone():
    source = Source(Stream(41), name="books", geometry=Geometry(2, 4))
    plain = Reader([Source(Stream(41), name="books", geometry=Geometry(2, 4))])
    lawful = Reader([source], law=MixLaw({"books": 2.0}, seed=0))
    for _ in range(12):
        expected, found = plain.next(), lawful.next()
        assert found.cursor == expected.cursor
        assert np.array_equal(found.sequences, expected.sequences)


def test_what_a_shuffled_mix_reads_is_pinned():
    """Golden: shuffle, mix, digest and chain together."""
    sources = [
        Source(Stream(tokens, shard_tokens=11), name=name, geometry=Geometry(2, 4), shuffle=Shuffle(2, 5))
        for name, tokens in (("books", 61), ("web", 45))
    ]
    reader = Reader(sources, law=MixLaw({"books": 2.0, "web": 1.0}, seed=1))
    chain = FIRST_DATA_CHAIN
    for _ in range(30):
        chain = advance_data_chain(chain, digest=reader.next().digest)
    assert chain == GOLDEN_CHAIN
    assert reader.cursor == {"books": Position(2, 32), "web": Position(2, 16)}
    reader.close()
