"""A run under a recipe lock: what is typed must be what was frozen, before anything else happens. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ledger.config import load_config
from ledger.dataset.manifest import Dataset
from ledger.dataset.verify import verify_dataset
from ledger.errors import RefusedError
from ledger.locks import recipe_of_lock
from ledger.pilot.comparing import Difference, held_differences
from ledger.records.locks import LockedDataset, RecipeLock
from trainer.config import TrainerConfig
from trainer.recipe import parts_of, recipe_of
from trainer.sources import DataSources

__all__ = ["config_of_lock", "require_every_byte", "require_lock"]


def config_of_lock(lock: RecipeLock, overrides: Iterable[str]) -> TrainerConfig:
    """Return the configuration that a lock holds, with overrides.

    Raises:
        ConfigError: it is not one of this trainer's, or an override is malformed.
    """
    return load_config((), overrides, model=TrainerConfig, base=recipe_of_lock(lock).config)


def require_lock(lock: RecipeLock, config: TrainerConfig, sources: DataSources, *, path: Path) -> None:
    """Insist that a resolved configuration, its data and this trainer are what a lock holds.

    Raises:
        RefusedError: they are not; one message names every difference.
    """
    found = [
        *held_differences(lock, recipe_of(config), data=sources.identities, parts=parts_of(config)),
        *_dataset_differences(lock, sources),
    ]
    if found:
        raise RefusedError(
            f"{len(found)} difference(s) from the lock (locked -> found): {'; '.join(map(str, found))}",
            path=path,
            expected="the recipe as it was frozen",
            advice="set them back; an approved change is rehearsed and frozen into a new lock that names this one",
        )


def require_every_byte(sources: DataSources) -> None:
    """Insist that the bytes of the data are those of its inventory, whose digest is all that a lock compares.

    Raises:
        LedgerError: the first file that is damaged, missing or another one.
    """
    for directory in dict.fromkeys(
        [sources.main.directory, *(one.directory for one in sources.sources.values())]
    ):
        for problem in verify_dataset(directory).errors:
            raise problem.error


def _dataset_differences(lock: RecipeLock, sources: DataSources) -> Iterator[Difference]:
    found = {**sources.sources, "main": sources.main}
    for name, locked in lock.datasets.items():
        if name not in found:
            yield Difference(kind="data", field=f"dataset {name}", before=locked.metadata_sha256, after=None)
            continue
        yield from _differences(name, locked, found[name])


def _differences(name: str, locked: LockedDataset, dataset: Dataset) -> Iterator[Difference]:
    manifest = dataset.manifest
    tokens = {split: inventory.tokens for split, inventory in manifest.splits.items()}
    pairs = {
        "identity": (locked.metadata_sha256, dataset.metadata_sha256),
        "tokenizer": (locked.tokenizer_sha256, manifest.tokenizer.sha256),
        "vocabulary": (locked.vocabulary, manifest.tokenizer.vocabulary),
        "tokens": (locked.tokens, tokens),
    }
    for what, (before, after) in pairs.items():
        if before != after:
            yield Difference(kind="data", field=f"{what} of dataset {name}", before=before, after=after)
