"""Builds small datasets straight from tokens, without a preparation."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from ledger.dataset.manifest import METADATA_NAME, TOKENIZER_NAME, Dataset, open_dataset
from ledger.dataset.npy import write_array
from ledger.records.dataset import (
    DatasetManifest,
    DatasetSource,
    DatasetTokenizer,
    EndsFile,
    PreparationPlan,
    ShardEntry,
    ShuffleRule,
    SplitInventory,
    SplitRule,
    token_dtype,
)
from ledger.storage.documents import write_document

EOS = 0
_TOKENIZER = b"{}"


def write_split(directory: Path, *, name: str, documents: list[list[int]], dtype, shard_tokens: int):
    """Write the shards and ends of documents that have their end-of-text token already; return the inventory."""
    stream = np.array([token for document in documents for token in document], dtype=dtype)
    ends = np.cumsum([len(document) for document in documents], dtype=np.uint64)
    shards = []
    for index, start in enumerate(range(0, stream.size, shard_tokens)):
        tokens = stream[start : start + shard_tokens]
        inside = ends[(ends > start) & (ends <= start + tokens.size)]
        file = f"{name}-{index:05d}.npy"
        size, sha256 = write_array(directory / file, tokens, dtype=dtype)
        entry = None
        if inside.size:
            ends_file = f"{name}-{index:05d}.ends.npy"
            entry = EndsFile(
                file=ends_file, sha256=write_array(directory / ends_file, inside, dtype="uint64")[1]
            )
        shards.append(
            ShardEntry(
                file=file, tokens=tokens.size, documents=inside.size, bytes=size, sha256=sha256, ends=entry
            )
        )
    return SplitInventory(documents=len(documents), tokens=stream.size, bytes=stream.size, shards=shards)


def build_dataset(
    directory: Path, *, splits: dict[str, list[list[int]]], vocabulary: int = 300, shard_tokens: int = 50
) -> Dataset:
    """Write a whole dataset and open it."""
    directory.mkdir()
    (directory / TOKENIZER_NAME).write_bytes(_TOKENIZER)
    dtype = token_dtype(vocabulary)
    inventories = {
        name: write_split(directory, name=name, documents=documents, dtype=dtype, shard_tokens=shard_tokens)
        for name, documents in splits.items()
    }
    manifest = DatasetManifest(
        source=DatasetSource(
            kind="text", id="text", requested_revision=None, resolved_revision=None, options={}, files=[]
        ),
        tokenizer=DatasetTokenizer(
            id="given",
            requested_revision=None,
            resolved_revision=None,
            sha256=hashlib.sha256(_TOKENIZER).hexdigest(),
            canary_sha256="0" * 64,
            vocabulary=vocabulary,
            eos_token="<eos>",
            eos_id=EOS,
            training=None,
        ),
        preparation=PreparationPlan(
            algorithm=1,
            shuffle=ShuffleRule(seed=0, buffer=1),
            split=SplitRule(rule="keyed-hash", key="k", validation_fraction=0.0),
            train_tokens=None,
            validation_tokens=None,
            if_short="error",
            shard_tokens=shard_tokens,
        ),
        dtype=dtype,
        left_out={"empty": 0},
        splits=inventories,
    )
    write_document(directory / METADATA_NAME, manifest, replace=False)
    return open_dataset(directory)


def documents(count: int, *, length: int = 7, vocabulary: int = 300) -> list[list[int]]:
    """Return documents of different, known tokens, each ended by end-of-text."""
    return [
        [
            *(
                1 + (index * 7_919 + place * 104_729) % (vocabulary - 1)
                for place in range(1 + index % length)
            ),
            EOS,
        ]
        for index in range(count)
    ]
