"""Reads prepared datasets back for the tests of preparation."""

from __future__ import annotations

import importlib
from itertools import pairwise
from pathlib import Path

from ledger.dataset.manifest import open_dataset

__all__ = ["stored"]


def stored(directory: Path, split: str) -> list[str]:
    """Decode every document of a split."""
    dataset = open_dataset(directory)
    library = importlib.import_module("tokenizers")
    tokenizer = library.Tokenizer.from_file(str(dataset.tokenizer_path))
    reader = dataset.split(split)
    ends = [0, *reader.document_ends().astype(int).tolist()]
    stream = reader.read(0, count=reader.tokens).tolist()
    documents = [stream[start:end] for start, end in pairwise(ends)]
    assert all(ids[-1] == dataset.manifest.tokenizer.eos_id for ids in documents)
    return [tokenizer.decode(ids[:-1], skip_special_tokens=False) for ids in documents]
