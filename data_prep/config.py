"""What a preparation is told: one strict model, from YAML files and dotted overrides."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ledger.config import StrictModel, leaf, require_leaf_classes

__all__ = [
    "DEFAULT_EOS",
    "GivenTokenizer",
    "JsonlSource",
    "PreparationConfig",
    "PythonDocsSource",
    "ShuffleConfig",
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
    """Files, globs and folders (every .txt, .md or .rst below, plain or .gz), read in this order."""
    unit: Literal["file", "line"] = leaf("identity", "file")
    """What a document is: a whole file, or a line."""


class JsonlSource(StrictModel):
    """Files of one JSON object a line."""

    kind: Literal["jsonl"] = leaf("identity")
    files: list[str] = leaf("volatile", min_length=1)
    """Files, globs and folders (every .jsonl or .ndjson below, plain or .gz), read in this order."""
    column: str = leaf("identity", "text", min_length=1)
    """The key that holds the text."""


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


class PreparationConfig(StrictModel):
    """A whole preparation."""

    source: Annotated[PythonDocsSource | TextSource | JsonlSource, Field(discriminator="kind")]
    """Where the text comes from."""
    tokenizer: Annotated[TrainedTokenizer | GivenTokenizer, Field(discriminator="kind")]
    """What turns it into ids."""
    split: SplitConfig = SplitConfig()
    """Which documents are held out."""
    shuffle: ShuffleConfig = ShuffleConfig()
    """The order of training documents."""
    train_tokens: int | None = leaf("identity", None, ge=1, le=2**53 - 1)
    """Prepare at least this many training tokens, up to a complete document; null: all there are."""
    validation_tokens: int | None = leaf("identity", None, ge=1, le=2**53 - 1)
    """Likewise for validation; null: in proportion to `train_tokens`, or all where that is null."""
    if_short: Literal["error", "accept"] = leaf("identity", "error")
    """What it means that the text runs out before that: an error, or accepted and recorded."""
    shard_tokens: int = leaf("identity", 33_554_432, ge=1, le=2**31)
    """Tokens of a shard; a split's last one may be shorter."""


require_leaf_classes(PreparationConfig)
