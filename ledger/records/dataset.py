"""metadata.json and preparation.json: what a prepared dataset is, and how it happened to be prepared.

`DatasetManifest` is the identity: nothing in it depends on the directory, the clock or a library's version.
`PreparationNotes` holds those, beside it. The models check what a manifest says about itself (totals, sizes
that follow from counts); that the files agree is the work of `ledger.dataset`.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field, model_validator

from ledger.records.base import Document, Record
from ledger.records.fields import Count, Json, Name, NonNegative, Positive, Sha256, Text, Time

__all__ = [
    "BLOCK_BYTES",
    "ENDS_BYTES",
    "HEADER_BYTES",
    "TOKEN_BYTES",
    "DatasetManifest",
    "DatasetSource",
    "DatasetTokenizer",
    "EndsFile",
    "LengthRule",
    "PreparationNotes",
    "PreparationPlan",
    "ShardEntry",
    "ShuffleRule",
    "SourceFile",
    "SplitInventory",
    "SplitRule",
    "TokenDtype",
    "TokenizerTraining",
    "token_dtype",
]

TokenDtype = Literal["uint16", "uint32"]

HEADER_BYTES: Final = 128
"""Size of the header of every array file."""

TOKEN_BYTES: Final[dict[TokenDtype, int]] = {"uint16": 2, "uint32": 4}
"""Bytes of one token id."""

ENDS_BYTES: Final = 8
"""Bytes of one document end."""

BLOCK_BYTES: Final = 16 * 2**20
"""Bytes of a block of a file, the last one shorter, whose digest tells where damage lies."""


def token_dtype(vocabulary: int) -> TokenDtype:
    """Return the type in which ids below `vocabulary` are stored: `uint16` while they fit."""
    return "uint16" if vocabulary <= 2**16 else "uint32"


class SourceFile(Record):
    """One input file, identified by its content."""

    name: Text = Field(description="Its name inside the input that was given, never an absolute path.")
    bytes: Count = Field(description="Size as stored, compressed where it is.")
    sha256: Sha256 = Field(description="Digest of the bytes as stored.")


class DatasetSource(Record):
    """Where the text came from."""

    kind: Name = Field(description="How it was read: python-docs, text, jsonl, …")
    id: Text = Field(description="What it is called: the kind itself for local files.")
    requested_revision: Text | None = Field(description="The revision that was asked for, or null.")
    resolved_revision: Text | None = Field(description="The immutable revision that was read, or null.")
    options: dict[str, Json] = Field(description="What else decides the documents: column, unit, …")
    files: list[SourceFile] = Field(description="Every input file in reading order.")


class TokenizerTraining(Record):
    """How a tokenizer was trained on the training split's first documents in source order."""

    algorithm: Name = Field(description="byte-level-bpe.")
    vocabulary: Positive = Field(description="Entries asked for; fewer result from very little text.")
    sample_bytes: Positive = Field(description="Training ended with the document that reached this size.")


class DatasetTokenizer(Record):
    """The tokenizer that made the ids; its file lies in the dataset."""

    id: Text = Field(description="What it is called.")
    requested_revision: Text | None = Field(description="The revision that was asked for, or null.")
    resolved_revision: Text | None = Field(description="The immutable revision that was used, or null.")
    sha256: Sha256 = Field(description="Digest of tokenizer.json as it lies in the dataset.")
    canary_sha256: Sha256 = Field(description="Digest of the ids of a fixed set of texts.")
    vocabulary: Positive = Field(le=2**32, description="Every id is below this.")
    eos_token: Text = Field(description="The entry that ends every document.")
    eos_id: Count = Field(description="Its id.")
    training: TokenizerTraining | None = Field(description="How it was trained here; null for a given one.")

    @model_validator(mode="after")
    def _check_eos(self) -> DatasetTokenizer:
        if self.eos_id >= self.vocabulary:
            raise ValueError(
                f"eos_id is {self.eos_id} but every id must be below the vocabulary, {self.vocabulary}"
            )
        return self


class ShuffleRule(Record):
    """The bounded buffer that shuffles training documents; validation keeps source order."""

    seed: Count
    buffer: Positive = Field(description="Documents held; 1 keeps the source's order.")
    buffer_bytes: Positive = Field(256 * 2**20, description="Bytes of text held, unless one has more.")


class SplitRule(Record):
    """How a document is assigned to a split."""

    rule: Literal["keyed-hash", "given"] = Field(
        description="keyed-hash: by the exact text, equal texts stay together; given: a source of its own."
    )
    key: Text
    validation_fraction: NonNegative = Field(lt=1, description="Share of distinct texts; 0: no such split.")


class LengthRule(Record):
    """How long a document may be; nothing is ever cut."""

    max_bytes: Positive | None = Field(None, description="Bytes of text; null: no limit.")
    max_tokens: Positive | None = Field(None, description="Tokens, end-of-text included; null: no limit.")
    overflow: Literal["error", "skip"] = Field("error", description="What a longer one is; skip: counted.")


class PreparationPlan(Record):
    """The choices of a preparation that decide its bytes."""

    algorithm: Positive = Field(description="Version of the whole procedure.")
    shuffle: ShuffleRule
    split: SplitRule
    train_tokens: Positive | None = Field(description="At least this many; null: all there are.")
    validation_tokens: Positive | None = Field(description="Likewise for validation.")
    if_short: Literal["error", "accept"] = Field(description="What a source that runs out before that is.")
    shard_tokens: Positive = Field(description="Tokens of every shard of a split but its last.")
    length: LengthRule = Field(LengthRule(), description="Documents that are too long.")
    deduplicate: bool = Field(
        default=False, description="Whether later documents of equal text were left out."
    )


class EndsFile(Record):
    """The file of document ends beside a shard."""

    file: Text
    sha256: Sha256


class ShardEntry(Record):
    """One shard: an array file of tokens."""

    file: Text
    tokens: Positive
    documents: Count = Field(description="Documents that end in this shard.")
    bytes: Positive = Field(description="Size of the file.")
    sha256: Sha256
    ends: EndsFile | None = Field(description="Where they end; null where none does.")

    @model_validator(mode="after")
    def _check_ends(self) -> ShardEntry:
        if (self.ends is None) != (self.documents == 0):
            raise ValueError(f"{self.documents} documents end in {self.file!r}, but `ends` says otherwise")
        return self


class SplitInventory(Record):
    """What one split holds; its shards, read in order, are its token stream."""

    documents: Positive
    tokens: Positive
    bytes: Count = Field(description="UTF-8 bytes of text that was tokenized.")
    shards: list[ShardEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _check_totals(self) -> SplitInventory:
        for name in ("tokens", "documents"):
            total, parts = getattr(self, name), sum(getattr(shard, name) for shard in self.shards)
            if total != parts:
                raise ValueError(f"{name} is {total} but the shards add up to {parts}")
        return self


class DatasetManifest(Document):
    """metadata.json of a dataset; its digest is the dataset's identity."""

    SCHEMA: ClassVar[str] = "ledger.dataset"

    schema_name: Literal["ledger.dataset"] = Field("ledger.dataset", alias="schema")
    version: Literal[1] = 1
    source: DatasetSource
    validation_source: DatasetSource | None = Field(
        None, description="Where held-out text came from, if given."
    )
    tokenizer: DatasetTokenizer
    preparation: PreparationPlan
    dtype: TokenDtype = Field(description="uint16 while the vocabulary fits, else uint32.")
    left_out: dict[Name, Count] = Field(
        description="Documents in front of the last stored one that were not: empty, too_long, duplicate."
    )
    shared: Count = Field(0, description="Training documents whose text a given validation source holds too.")
    splits: dict[Name, SplitInventory] = Field(min_length=1, description="train; validation if there is one.")

    @model_validator(mode="after")
    def _check_sizes(self) -> DatasetManifest:
        fitting = token_dtype(self.tokenizer.vocabulary)
        if self.dtype != fitting:
            raise ValueError(
                f"dtype is {self.dtype} but a vocabulary of {self.tokenizer.vocabulary} takes {fitting}"
            )
        for split in self.splits.values():
            for shard in split.shards:
                size = HEADER_BYTES + shard.tokens * TOKEN_BYTES[self.dtype]
                if shard.bytes != size:
                    raise ValueError(
                        f"bytes of {shard.file!r} is {shard.bytes}; {shard.tokens} {self.dtype} tokens take {size}"
                    )
        return self


class PreparationNotes(Document):
    """preparation.json: how, when and with what a dataset was prepared; no part of its identity."""

    SCHEMA: ClassVar[str] = "ledger.dataset-preparation"

    schema_name: Literal["ledger.dataset-preparation"] = Field("ledger.dataset-preparation", alias="schema")
    version: Literal[1] = 1
    metadata_sha256: Sha256 = Field(description="The dataset that these notes belong to.")
    config: dict[str, Json] = Field(description="The resolved configuration; it loads on its own.")
    started: Time
    seconds: NonNegative
    python: Text
    packages: dict[str, Text] = Field(description="Distribution name to version.")
    engine: Name = Field(description="What ran the plan: embedded or ray.")
    workers: Positive = Field(description="Processes that tokenized.")
    backend: Name = Field(description="The library that made the ids: tokenizers or tiktoken.")
    backend_reason: Text | None = Field(None, description="Why the fast one did not; null where it did.")
    resumed_shards: Count = Field(0, description="Shards taken over from interrupted preparations.")
    blocks: dict[Name, list[Sha256]] = Field(
        default_factory=dict,
        description="SHA-256 of every 16 MiB of each array file, to tell where damage lies.",
    )
