"""Texts seen: the same answers whether their digests are in memory or on disk."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.seen import SeenTexts
from ledger.errors import StorageError


@given(texts=st.lists(st.binary(max_size=2), max_size=60), held=st.integers(1, 9))
def test_what_was_added_is_known_wherever_it_is_kept(texts, held):
    seen, known = SeenTexts(held=held), set()
    for text in texts:
        assert (text in seen) == (text in known)
        assert seen.add(text) == (text not in known)
        known.add(text)
    assert all(text in seen for text in texts)


def test_memory_holds_no_more_than_it_may():
    seen = SeenTexts(held=10)
    for number in range(95):
        seen.add(bytes([number]))
    assert len(seen._recent) == 5


def test_a_disk_that_refuses_is_one_clear_error(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("sqlite3.connect", refuse)
    seen = SeenTexts(held=2)
    seen.add(b"a")
    with pytest.raises(StorageError, match=r"disk is full.*TMPDIR"):
        seen.add(b"b")
