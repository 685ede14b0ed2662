"""The datasets that a configuration names: the one of `data.path`, and those of a mix. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ledger.dataset.manifest import Dataset, open_dataset
from ledger.dataset.mix import mix_sha256
from ledger.dataset.rule import SINGLE_SOURCE, ReadingRule, parse_reading_rule
from ledger.errors import RefusedError
from ledger.records.parts import DataIdentities
from trainer.config import DataConfig

__all__ = ["TRAIN_SPLIT", "VALIDATION_SPLIT", "DataSources", "open_sources", "reading_rule"]

TRAIN_SPLIT = "train"
"""The split of every dataset that training reads."""

VALIDATION_SPLIT = "validation"
"""The split that training never reads."""


@dataclass(frozen=True, kw_only=True)
class DataSources:
    """What a run reads."""

    main: Dataset
    """The dataset of `data.path`: its tokenizer, its held-out text, and without a mix what is trained on."""
    sources: Mapping[str, Dataset]
    """Name in cursors to the dataset that training reads under it."""

    @property
    def is_mix(self) -> bool:
        """Whether training reads a mix."""
        return tuple(self.sources.values()) != (self.main,)

    @property
    def identity(self) -> str:
        """Identity of what is trained on: the dataset's, or the mix's."""
        if not self.is_mix:
            return self.main.metadata_sha256
        return mix_sha256({name: dataset.metadata_sha256 for name, dataset in self.sources.items()})

    @property
    def has_validation(self) -> bool:
        """Whether there is held-out text."""
        return VALIDATION_SPLIT in self.main.manifest.splits

    @property
    def identities(self) -> DataIdentities:
        """What is trained on, and the dataset that holds the held-out text, where there is any."""
        validation = self.main.metadata_sha256 if self.has_validation else None
        return DataIdentities(train=self.identity, validation=validation)


def open_sources(config: DataConfig) -> DataSources:
    """Open every dataset that a configuration names.

    Raises:
        RefusedError: the datasets of a mix were not made with one tokenizer.
        LedgerError: what `open_dataset` raises.
    """
    main = open_dataset(config.path)
    if config.sources is None:
        return DataSources(main=main, sources={SINGLE_SOURCE: main})
    sources = {name: open_dataset(source.path) for name, source in sorted(config.sources.items())}
    expected = main.manifest.tokenizer.sha256
    for name, dataset in sources.items():
        found = dataset.manifest.tokenizer.sha256
        if found != expected:
            raise RefusedError(
                f"data.sources.{name} was tokenized by another tokenizer, {found}",
                path=dataset.directory,
                expected=f"{expected}, that of data.path",
                advice="prepare all datasets of a mix with one tokenizer",
            )
    return DataSources(main=main, sources=sources)


def reading_rule(config: DataConfig) -> ReadingRule:
    """Return the rule of reading, from the same keys as the audit reads it off the recorded recipe."""
    return parse_reading_rule(config.model_dump(mode="json"))
