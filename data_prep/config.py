"""What a preparation is told: one strict model, from YAML files and dotted overrides."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ledger.config import StrictModel, leaf, require_leaf_classes

__all__ = [
    "DEFAULT_EOS",
    "ArrowSource",
    "GivenTokenizer",
    "HubSource",
    "HubTokenizer",
    "JsonlSource",
    "LimitsConfig",
    "ParquetSource",
    "PreparationConfig",
    "PythonDocsSource",
    "ShuffleConfig",
    "SourceConfig",
    "SplitConfig",
    "TextSource",
    "TrainedTokenizer",
]

DEFAULT_EOS = "<|endoftext|>"


class PythonDocsSource(StrictModel):
    """The documentation in this Python installation: what is there without a network."""

    kind: Literal["python-docs"] = leaf("identity")


class TextSource(StrictModel):
    """Plain text files."""

    kind: Literal["text"] = leaf("identity")
    files: list[str] = leaf("volatile", min_length=1)
    """Files, globs and folders (every .txt, .md or .rst below, plain, .gz or .zst), read in this order."""
    unit: Literal["file", "line"] = leaf("identity", "file")
    """What a document is: a whole file, or a line."""


class JsonlSource(StrictModel):
    """Files of one JSON object a line."""

    kind: Literal["jsonl"] = leaf("identity")
    files: list[str] = leaf("volatile", min_length=1)
    """Files, globs and folders (every .jsonl or .ndjson below, plain, .gz or .zst), read in this order."""
    column: str = leaf("identity", "text", min_length=1)
    """The key that holds the text."""
    id_column: str | None = leaf("volatile", None, min_length=1)
    """A key whose value names a document in messages."""


class ParquetSource(StrictModel):
    """Parquet files."""

    kind: Literal["parquet"] = leaf("identity")
    files: list[str] = leaf("volatile", min_length=1)
    """Files, globs and folders (every .parquet below, plain, .gz or .zst), read in this order."""
    column: str = leaf("identity", "text", min_length=1)
    """The column that holds the text."""
    id_column: str | None = leaf("volatile", None, min_length=1)
    """A column whose value names a document in messages."""


class ArrowSource(StrictModel):
    """Arrow files or streams."""

    kind: Literal["arrow"] = leaf("identity")
    files: list[str] = leaf("volatile", min_length=1)
    """Files, globs and folders (every .arrow, .feather or .ipc below, plain, .gz or .zst), in this order."""
    column: str = leaf("identity", "text", min_length=1)
    """The column that holds the text."""
    id_column: str | None = leaf("volatile", None, min_length=1)
    """A column whose value names a document in messages."""


class HubSource(StrictModel):
    """A dataset of the Hugging Face hub."""

    kind: Literal["huggingface"] = leaf("identity")
    id: str = leaf("identity", min_length=1)
    """Its id, such as HuggingFaceFW/fineweb-edu."""
    revision: str = leaf("identity", "main", min_length=1)
    """A branch, tag or commit; it is resolved to a commit before anything is read."""
    files: list[str] = leaf("identity", min_length=1)
    """Patterns of file names in it, such as sample/10BT/*.parquet; read in the order of the names."""
    column: str = leaf("identity", "text", min_length=1)
    """The column that holds the text."""
    id_column: str | None = leaf("volatile", None, min_length=1)
    """A column whose value names a document in messages."""


SourceConfig = PythonDocsSource | TextSource | JsonlSource | ParquetSource | ArrowSource | HubSource
"""Where text can come from."""


class SplitConfig(StrictModel):
    """Which documents are held out."""

    key: str = leaf("identity", "ledger", min_length=1, max_length=256)
    """Another key makes another split; documents with equal text always stay together."""
    validation_fraction: float = leaf("identity", 0.05, ge=0, lt=1)
    """Share of distinct texts that is held out; 0: none."""


class ShuffleConfig(StrictModel):
    """The order of training documents; validation keeps the order of the source."""

    seed: int = leaf("identity", 0, ge=0, le=2**53 - 1)
    """Another seed makes another order."""
    buffer: int = leaf("identity", 100_000, ge=1, le=100_000_000)
    """Documents held in memory to draw from; 1 keeps the order of the source."""
    buffer_bytes: int = leaf("identity", 256 * 2**20, ge=1, le=2**40)
    """Bytes of text held at most (one document may exceed them): it bounds the memory where texts are long."""


class LimitsConfig(StrictModel):
    """How long a document may be. Nothing is ever cut."""

    max_bytes: int | None = leaf("identity", None, ge=1, le=2**53 - 1)
    """Bytes of text; null: no limit."""
    max_tokens: int | None = leaf("identity", None, ge=1, le=2**53 - 1)
    """Tokens, end-of-text included; null: no limit."""
    overflow: Literal["error", "skip"] = leaf("identity", "error")
    """A longer document ends the preparation, or is left out and counted."""


class TrainedTokenizer(StrictModel):
    """A byte-level BPE, trained on the training split."""

    kind: Literal["train"] = leaf("identity")
    vocabulary: int = leaf("identity", 4_096, ge=257, le=1_000_000)
    """Entries, the 256 bytes and end-of-text included; very little text gives fewer."""
    sample_bytes: int = leaf("identity", 64 * 2**20, ge=1, le=2**34)
    """Text to train on: the first training documents of the source that reach this size."""
    eos_token: str = leaf("identity", DEFAULT_EOS, min_length=1, max_length=64)
    """The entry that ends every document."""


class GivenTokenizer(StrictModel):
    """A tokenizer.json that exists."""

    kind: Literal["file"] = leaf("identity")
    path: str = leaf("volatile", min_length=1)
    """Where it lies; it is identified by its content and copied into the dataset."""
    eos_token: str = leaf("identity", DEFAULT_EOS, min_length=1, max_length=64)
    """Its entry that ends every document."""


class HubTokenizer(StrictModel):
    """The tokenizer.json of a model of the Hugging Face hub."""

    kind: Literal["huggingface"] = leaf("identity")
    id: str = leaf("identity", min_length=1)
    """The model's id, such as openai-community/gpt2."""
    revision: str = leaf("identity", "main", min_length=1)
    """A branch, tag or commit; it is resolved to a commit before anything is read."""
    eos_token: str = leaf("identity", DEFAULT_EOS, min_length=1, max_length=64)
    """Its entry that ends every document."""


class PreparationConfig(StrictModel):
    """A whole preparation."""

    source: Annotated[SourceConfig, Field(discriminator="kind")]
    """Where the text comes from."""
    validation_source: Annotated[SourceConfig, Field(discriminator="kind")] | None = leaf("identity", None)
    """Where held-out text comes from; null: it is split off the source by `split`."""
    tokenizer: Annotated[TrainedTokenizer | GivenTokenizer | HubTokenizer, Field(discriminator="kind")]
    """What turns it into ids."""
    split: SplitConfig = SplitConfig()
    """Which documents are held out."""
    shuffle: ShuffleConfig = ShuffleConfig()
    """The order of training documents."""
    limits: LimitsConfig = LimitsConfig()
    """How long a document may be."""
    deduplicate: bool = leaf("identity", False)  # noqa: FBT003 - the default
    """Leave out every document whose exact text came before; 100 MB of memory for a million documents, the digests
    of more lie on disk (TMPDIR), 30 bytes each."""
    train_tokens: int | None = leaf("identity", None, ge=1, le=2**53 - 1)
    """Prepare at least this many training tokens, up to a complete document; null: all there are."""
    validation_tokens: int | None = leaf("identity", None, ge=1, le=2**53 - 1)
    """Likewise for validation; null: in proportion to `train_tokens`, or all where that is null."""
    if_short: Literal["error", "accept"] = leaf("identity", "error")
    """What it means that the text runs out before that: an error, or accepted and recorded."""
    shard_tokens: int = leaf("identity", 33_554_432, ge=1, le=2**31)
    """Tokens of a shard; a split's last one may be shorter."""
    group_shards: int | None = leaf("identity", None, ge=1, le=2**20)
    """Round `train_tokens` up to whole groups of so many shards, for a trainer that shuffles within groups."""
    workers: int = leaf("volatile", 1, ge=1, le=1_024)
    """Processes that tokenize; the bytes are the same for any number."""
    engine: Literal["embedded", "ray"] = leaf("volatile", "embedded")
    """What runs the workers: this program, or a Ray cluster (RAY_ADDRESS, else a local one)."""
    backend: Literal["auto", "tokenizers", "tiktoken"] = leaf("volatile", "auto")
    """The library that makes the ids; auto: tiktoken where its ids are provably the same."""

    @model_validator(mode="after")
    def _check_group(self) -> PreparationConfig:
        if self.group_shards is not None and self.train_tokens is None:
            raise ValueError("group_shards rounds train_tokens up, which is null")
        return self

    @model_validator(mode="after")
    def _check_validation(self) -> PreparationConfig:
        is_split_off = self.validation_source is not None or self.split.validation_fraction > 0
        if self.validation_tokens is not None and not is_split_off:
            raise ValueError("validation_tokens asks for held-out text, and split.validation_fraction is 0")
        return self


require_leaf_classes(PreparationConfig)
