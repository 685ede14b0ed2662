"""What decides a stage's result, as one digest. Pure; knows no files.

Part of it: every setting but volatile ones (paths, names), the machine's kind and threads, digests of the local files
that are read, versions of the parts in use, fingerprints of the stages that are read. Not part of it: what says *how*
to run (folders, workers, which stages), and the bounds of gates, which judge the evidence and do not make it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger.recipes import leaf_values
from ledger.records.documents import LeafClass, Recipe
from ledger.records.fields import Json
from ledger.storage.canonical import digest_of

__all__ = ["Fingerprint", "changed", "recipe_inputs"]

MACHINE: Final = ("machine.device", "machine.threads")
"""Volatile leaves of a recipe that decide what a rehearsal shows: what it runs on, and the last bits."""


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """A stage with everything that decides its result."""

    stage: str
    inputs: Mapping[str, Json]
    """Name of an input to its digest or value."""
    parts: Mapping[str, int]
    """Versions of the parts that make the result."""

    @property
    def sha256(self) -> str:
        """The digest of it all."""
        return digest_of({"stage": self.stage, "inputs": dict(self.inputs), "parts": dict(self.parts)})

    @property
    def folder(self) -> str:
        """Name of the stage's folder."""
        return f"{self.stage}-{self.sha256[:16]}"


def recipe_inputs(config: Mapping[str, Json], classes: Mapping[str, LeafClass]) -> dict[str, Json]:
    """Return the leaves of a resolved configuration that decide what a run of it shows, by their paths."""
    leaves = leaf_values(Recipe.model_construct(config=dict(config), classes=dict(classes)))
    return {
        f"recipe.{path}": value
        for path, value in leaves.items()
        if classes.get(path) != "volatile" or path in MACHINE
    }


def changed(before: Mapping[str, Json], after: Mapping[str, Json]) -> list[str]:
    """Return the names under which two mappings differ, sorted."""
    return sorted(
        name
        for name in before.keys() | after.keys()
        if digest_of([before.get(name)]) != digest_of([after.get(name)])
        or (name in before) != (name in after)
    )
