"""The run of a pilot on which the long run's budget and lock rest: what it measured, read and ran on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ledger.dataset.manifest import Dataset
from ledger.errors import EvidenceMissingError, LedgerError, StorageError
from ledger.pilot.budget import project_budget, rates_of
from ledger.pilot.datasets import PilotData, pilot_data
from ledger.pilot.long_run import LongRun
from ledger.pilot.measure import RunMeasurements, measure_run
from ledger.records.documents import Environment, Recipe
from ledger.records.layout import ENVIRONMENTS, LOG, RECIPES
from ledger.records.locks import Budget
from ledger.records.parts import DataIdentities, RunFacts
from ledger.records.pilot import PilotRecord
from ledger.storage.documents import read_document
from ledger.storage.filesystem import OS

__all__ = ["RATED_STAGE", "Rehearsal", "pilot_budget", "recipe_of", "rehearsal_of"]

RATED_STAGE: Final = "stability"
"""The stage whose rates a budget rests on: it runs the long run's own recipe."""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """A run of the long run's recipe."""

    folder: Path
    found: RunMeasurements
    facts: RunFacts
    data: DataIdentities
    recipe: Recipe
    environment: Environment
    datasets: Mapping[str, Dataset]
    """By the name of the source; `train` where there is no mix. That of the held-out text comes first."""

    def budget(self, config: Mapping[str, Any], *, per_day: float) -> Budget | None:
        """Return what a run of this resolved configuration will take; None where the rehearsal has no rates.

        Raises:
            ValueError: the configuration lacks a section that it needs.
        """
        log_bytes = OS.stat(self.folder / LOG).st_size
        rates = rates_of(self.found, stage=RATED_STAGE, log_bytes=log_bytes)
        if rates is None:
            return None
        held_out = next(iter(self.datasets.values())).manifest.splits.get("validation")
        return project_budget(
            LongRun.of(config, parameters=sum(self.facts.model.parameters.values())),
            rates,
            validation_tokens=0 if held_out is None else held_out.tokens - 1,
            free_bytes=OS.free_bytes(self.folder),
            per_day=per_day,
        )


def rehearsal_of(folder: Path, *, data: PilotData) -> Rehearsal:
    """Return what a run of a pilot shows.

    Raises:
        EvidenceMissingError: it holds no session.
        LedgerError: its recipe or environment cannot be read.
    """
    found = measure_run(folder)
    sessions, facts = found.history.sessions, found.history.facts
    if not sessions or facts is None:
        raise EvidenceMissingError("the run holds no session", path=folder)
    start = sessions[-1].start
    environment = read_document(
        folder / ENVIRONMENTS / f"{start.environment_sha256}.json",
        Environment,
        sha256=start.environment_sha256,
    )
    return Rehearsal(
        folder=folder,
        found=found,
        facts=facts,
        data=start.data,
        recipe=recipe_of(folder, found),
        environment=environment,
        datasets=data.by_name,
    )


def recipe_of(folder: Path, found: RunMeasurements) -> Recipe:
    """Return the recipe of a run's last session.

    Raises:
        LedgerError: it cannot be read, or is another one.
    """
    sha256 = found.history.sessions[-1].start.recipe_sha256
    return read_document(folder / RECIPES / f"{sha256}.json", Recipe, sha256=sha256)


def pilot_budget(
    root: Path, pilot: PilotRecord, *, per_day: float, data: Path | None = None
) -> Budget | None:
    """Return the long run's budget from a pilot as its records stand; None where they do not say enough yet."""
    for stage in pilot.stages:
        run = root / stage.folder / "run"
        if stage.stage == RATED_STAGE and OS.exists(run / LOG):
            try:
                rehearsal = rehearsal_of(run, data=pilot_data(root, pilot, given=data))
                return rehearsal.budget(pilot.config, per_day=per_day)
            except StorageError:
                raise
            except (LedgerError, ValueError):
                return None  # what is wrong is said of the stage itself
    return None
