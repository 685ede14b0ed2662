"""Documents that lie in two splits."""

from __future__ import annotations

import hashlib

import pytest

from ledger.dataset import leakage
from ledger.dataset.leakage import document_digests, find_held_out_documents, find_shared_documents
from tests.ledger.dataset.builders import EOS, build_dataset, documents

SECRET = [7, 8, 9, EOS]


@pytest.mark.parametrize("block", [1, 5, 64, 2**22])
def test_documents_are_told_apart_across_shards_and_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(leakage, "_BLOCK_TOKENS", block)
    texts = [*documents(30), [1] * 150 + [EOS], [2, EOS]]
    split = build_dataset(tmp_path / "data", splits={"train": texts}, shard_tokens=16).split("train")
    expected = [
        hashlib.blake2b(b"".join(token.to_bytes(2, "little") for token in text), digest_size=16).digest()
        for text in texts
    ]
    assert list(document_digests(split)) == expected


def test_texts_of_one_split_may_repeat(tmp_path):
    dataset = build_dataset(tmp_path / "data", splits={"train": [SECRET] * 3, "validation": [[1, EOS]] * 2})
    assert list(find_shared_documents(dataset)) == []


def test_a_text_in_two_splits_is_one_problem_with_its_number_and_the_first_place(tmp_path):
    splits = {"train": [*documents(20), SECRET, SECRET], "validation": [[250, EOS], SECRET]}
    (problem,) = find_shared_documents(build_dataset(tmp_path / "data", splits=splits))
    assert problem.severity == "error"
    assert problem.file == "train-00000.npy"
    assert "2 documents" in str(problem)
    assert "document 20 is document 1 there" in str(problem)


def test_a_beginning_or_an_end_of_a_text_is_another_text(tmp_path):
    splits = {"train": [[7, 8, 9, 10, EOS], [8, 9, EOS]], "validation": [SECRET]}
    assert list(find_shared_documents(build_dataset(tmp_path / "data", splits=splits))) == []


def test_what_another_dataset_holds_out_is_a_warning_with_its_number(tmp_path):
    held_out = build_dataset(
        tmp_path / "books", splits={"train": [[1, EOS]], "validation": [[2, EOS], SECRET]}
    )
    clean = build_dataset(tmp_path / "clean", splits={"train": documents(9)})
    leaking = build_dataset(tmp_path / "web", splits={"train": [*documents(9), SECRET, [3, EOS], SECRET]})
    assert list(find_held_out_documents(clean, held_out=held_out)) == []
    (problem,) = find_held_out_documents(leaking, held_out=held_out)
    assert problem.severity == "warning"
    assert "2 documents have a text that validation of books holds" in str(problem)
    assert "document 9 is document 1 there" in str(problem)
