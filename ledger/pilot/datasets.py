"""The data that a pilot was rehearsed on, found again: in the pilot, or where its configuration says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ledger.dataset.manifest import METADATA_NAME, Dataset, open_dataset
from ledger.dataset.mix import mix_sha256
from ledger.dataset.rule import SINGLE_SOURCE
from ledger.errors import EvidenceMissingError, VerificationError
from ledger.records.documents import Recipe
from ledger.records.fields import Json
from ledger.records.pilot import PilotRecord
from ledger.storage.filesystem import OS

__all__ = ["DATASET", "PilotData", "pilot_data", "token_counts"]

DATASET = "dataset"
"""Folder of the prepared corpus below that of `prepare`."""
MOVED = (
    "where it was moved, run the pilot again with data.path set to where it lies now: nothing is trained again, "
    "because a dataset is known by its content"
)
MAIN = "main"
"""What the dataset of the held-out text is called beside the sources of a mix."""


@dataclass(frozen=True, kw_only=True)
class PilotData:
    """Datasets whose identities are those that a pilot names."""

    main: Dataset
    """It holds the held-out text."""
    sources: Mapping[str, Dataset]
    """Name of a source of the mix to its dataset; empty without a mix."""
    given: Path | None
    """Where the data was said to lie; None: where the records say."""

    @property
    def by_name(self) -> dict[str, Dataset]:
        """The datasets by their names, that of the held-out text first."""
        return {MAIN if self.sources else SINGLE_SOURCE: self.main, **self.sources}

    @property
    def trained(self) -> list[Dataset]:
        """The datasets that training reads."""
        return [*self.sources.values()] or [self.main]

    @property
    def paths(self) -> dict[str, Json]:
        """Leaf of a recipe to the folder that it names, absolute."""
        leaves = {"data.path": self.main} | {
            f"data.sources.{name}.path": found for name, found in self.sources.items()
        }
        return {leaf: str(found.directory.absolute()) for leaf, found in leaves.items()}

    def place_of(self, recipe: Recipe) -> Path | None:
        """Return where the data of a run lies; None where that is where its recipe says."""
        return self.given if _sources(recipe.config) else self.main.directory


def pilot_data(root: Path, pilot: PilotRecord, *, given: Path | None = None) -> PilotData:
    """Return the datasets that a pilot was rehearsed on.

    Args:
        root: the pilot's folder; a corpus that the pilot prepared lies in it.
        pilot: its record.
        given: where the dataset lies now; of a mix, a folder of each source by its name.

    Raises:
        EvidenceMissingError: a dataset is not where it should be.
        VerificationError: what is there is another one.
        LedgerError: it cannot be read.
    """
    sources = {name: _open(path) for name, path in _source_paths(pilot, given).items()}
    main = next(
        (found for found in sources.values() if found.metadata_sha256 == pilot.data.validation), None
    ) or _open(_main_path(root, pilot, given=None if sources else given))
    trained = (
        mix_sha256({name: found.metadata_sha256 for name, found in sources.items()})
        if sources
        else main.metadata_sha256
    )
    for dataset, found, expected in (
        (main, trained, pilot.data.train),
        (main, main.metadata_sha256, pilot.data.validation or main.metadata_sha256),
    ):
        if found != expected:
            raise VerificationError(
                f"is another dataset, {found}",
                path=dataset.directory,
                expected=f"what the pilot was rehearsed on, {expected}",
                advice=MOVED,
            )
    return PilotData(main=main, sources=sources, given=given)


def _sources(config: Mapping[str, Json]) -> dict[str, Json]:
    data = config.get("data")
    found = data.get("sources") if isinstance(data, Mapping) else None
    return dict(sorted(found.items())) if isinstance(found, Mapping) else {}


def _source_paths(pilot: PilotRecord, given: Path | None) -> dict[str, Path]:
    if given is not None:
        return {name: given / name for name in _sources(pilot.config)}
    return {name: _stated(source) for name, source in _sources(pilot.config).items()}


def _main_path(root: Path, pilot: PilotRecord, *, given: Path | None) -> Path:
    prepared = (root / stage.folder / DATASET for stage in pilot.stages if stage.stage == "prepare")
    here = next((folder for folder in prepared if OS.exists(folder / METADATA_NAME)), None)
    return given or here or _stated(pilot.config.get("data"))


def _stated(section: Json) -> Path:
    path = section.get("path") if isinstance(section, Mapping) else None
    if not isinstance(path, str):
        raise EvidenceMissingError(
            "the recipe does not say where its data lies",
            expected="data.path, as the reference trainer has it",
        )
    return Path(path)


def _open(path: Path) -> Dataset:
    if not OS.exists(path / METADATA_NAME):
        raise EvidenceMissingError(
            "there is no dataset, which the pilot was rehearsed on",
            path=path,
            expected=METADATA_NAME,
            advice=MOVED,
        )
    return open_dataset(path)


def token_counts(dataset: Dataset) -> dict[str, int | None]:
    """Return what a gate can ask of a prepared corpus."""
    held = dataset.manifest.splits
    return {f"{name}_tokens": held[name].tokens if name in held else None for name in ("train", "validation")}
