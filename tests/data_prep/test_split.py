"""The split depends on the exact text and the key alone."""

from __future__ import annotations

from collections import Counter

import pytest

from data_prep.split import Splitter

GOLDEN = [0, 3, 13, 16, 23, 25, 27, 50, 51, 58]
TEXTS = [f"document {index}".encode() for index in range(4_000)]


def assigned(key: str = "k", fraction: float = 0.1, texts: list[bytes] = TEXTS) -> list[str]:
    splitter = Splitter(key=key, validation_fraction=fraction)
    return [splitter.assign(text) for text in texts]


def test_the_split_is_pinned():
    """Golden: another assignment would move documents of every dataset between its splits."""
    held_out = [index for index, split in enumerate(assigned()[:60]) if split == "validation"]
    assert held_out == GOLDEN


def test_added_documents_move_nothing():
    assert assigned(texts=[b"new", *TEXTS, b"newer"])[1:-1] == assigned()


def test_equal_texts_stay_together_and_almost_equal_ones_need_not():
    assert len(set(assigned(texts=[b"same"] * 50))) == 1
    assert len(set(assigned(fraction=0.5, texts=[b"same" + b" " * n for n in range(50)]))) == 2


def test_the_share_is_about_what_was_asked_for():
    for fraction in (0.02, 0.1, 0.5):
        share = Counter(assigned(fraction=fraction))["validation"] / len(TEXTS)
        assert share == pytest.approx(fraction, rel=0.2)


def test_a_larger_share_keeps_the_smaller_ones_documents():
    small, large = assigned(fraction=0.05), assigned(fraction=0.2)
    assert all(
        after == "validation" for before, after in zip(small, large, strict=True) if before == "validation"
    )


def test_no_share_holds_nothing_out():
    assert set(assigned(fraction=0.0)) == {"train"}


def test_another_key_makes_another_split():
    assert assigned(key="k") != assigned(key="l")
