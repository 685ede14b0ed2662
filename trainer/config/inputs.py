"""What is read, in which order, and in which geometry."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from ledger.config import StrictModel, leaf

__all__ = [
    "BatchConfig",
    "DataConfig",
    "ShuffleConfig",
    "SourceConfig",
]


class ShuffleConfig(StrictModel):
    """Reading in shuffled order, within groups of consecutive shards: two groups are in memory at a time."""

    group_shards: int = leaf("identity", ge=1)
    """Shards of one group, in file order; their sequences are read in an order that each epoch draws anew."""
    seed: int = leaf("identity", 0, ge=0, lt=2**53)
    """Seed of the order."""


class SourceConfig(StrictModel):
    """One source of a mix."""

    path: str = leaf("volatile", min_length=1)
    """Folder of its prepared dataset, made with the tokenizer of `data.path`."""
    weight: float = leaf("identity", gt=0)
    """Its expected share of the microbatches is this over the sum of all weights."""
    metadata_sha256: str | None = leaf("identity", None, pattern=r"^[0-9a-f]{64}$")
    """Identity of its dataset; null: that of the dataset found at the first start."""


SourceName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$")]
"""Name of a source in cursors and reports; without dots, which separate the keys of a configuration."""


class DataConfig(StrictModel):
    """What is read, and in which order."""

    path: str = leaf("volatile", min_length=1)
    """Folder of the prepared dataset; with a mix, of the one whose held-out text is measured."""
    metadata_sha256: str | None = leaf("identity", None, pattern=r"^[0-9a-f]{64}$")
    """Identity of the dataset; null: that of the dataset found at the first start."""
    repeat: int | None = leaf("identity", None, ge=1)
    """The first N microbatches are the whole training source, read again in every epoch; null: all of it."""
    shuffle: ShuffleConfig | None = leaf("identity", None)
    """Shuffle within groups of shards; null: the order of the shards, the same in every epoch."""
    packing: Literal["stream", "documents"] = leaf("identity", "stream")
    """stream: nothing is masked; documents: attention and loss stop at the end of each document."""
    sources: dict[SourceName, SourceConfig] | None = leaf("identity", None, min_length=1)
    """A mix: name to dataset and weight; each microbatch reads one of them. Null: the dataset of `path` alone."""
    mix_seed: int = leaf("identity", 0, ge=0, lt=2**53)
    """Seed of the choice of a source for each microbatch."""
    prefetch: int = leaf("operational", 2, ge=0, le=1_024)
    """Microbatches fetched ahead in a thread; 0: none. It changes neither bytes nor cursors."""
    verify: bool = leaf("operational", default=False)
    """Rehash the dataset's files in the background while training; a damaged one fails the run."""

    @model_validator(mode="after")
    def _sources_fit(self) -> DataConfig:
        if self.sources is not None and self.repeat is not None:
            raise ValueError(
                "repeat and sources exclude each other: a mix has no first microbatches of its own"
            )
        return self


class BatchConfig(StrictModel):
    """The geometry of one optimizer update."""

    micro_batch: int = leaf("identity", ge=1)
    """Sequences of one forward and backward pass."""
    sequence: int = leaf("identity", ge=1)
    """Tokens of one sequence."""
    accumulation: int = leaf("identity", 1, ge=1)
    """Microbatches of one accumulation window, that is of one attempted update."""

    @property
    def tokens_per_microbatch(self) -> int:
        """Target positions of one microbatch."""
        return self.micro_batch * self.sequence
