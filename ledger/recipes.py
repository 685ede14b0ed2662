"""Recipes compared leaf by leaf: identity, differences, permitted changes. Pure; knows no files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger.records.documents import LeafClass, Recipe
from ledger.records.fields import Json
from ledger.records.locks import RecipeLock
from ledger.storage.canonical import digest_of

__all__ = [
    "CHECKPOINT_SECTION",
    "TARGET_FIELD",
    "LeafDifference",
    "identity_leaves",
    "identity_sha256",
    "leaf_values",
    "lock_differences",
    "recipe_differences",
]

TARGET_FIELD: Final = "run.target_step"
"""The one leaf that decides when a run is complete."""

CHECKPOINT_SECTION: Final = "checkpoint"
"""The operational section that a lock holds all the same."""

ABSENT: Final = None
"""What a leaf that one side does not have compares as."""


@dataclass(frozen=True, kw_only=True)
class LeafDifference:
    """One leaf on which two recipes differ."""

    field: str
    before: Json
    after: Json
    leaf_class: LeafClass

    @property
    def is_of_schedule(self) -> bool:
        """Whether it is a leaf of the schedule, which a branch that continues a run may change."""
        return self.field.partition(".")[0] == "schedule"

    def __str__(self) -> str:
        return f"{self.field}: {json.dumps(self.before)} -> {json.dumps(self.after)}"


def leaf_values(recipe: Recipe) -> dict[str, Json]:
    """Return dotted path → value of every leaf; a mapping that is itself classified is one leaf."""
    leaves: dict[str, Json] = {}
    _collect(recipe.config, prefix="", classes=recipe.classes, leaves=leaves)
    return leaves


def _collect(
    config: Mapping[str, Json], *, prefix: str, classes: Mapping[str, str], leaves: dict[str, Json]
) -> None:
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and path not in classes and value:
            _collect(value, prefix=f"{path}.", classes=classes, leaves=leaves)
        else:
            leaves[path] = value


def leaf_class(recipe: Recipe, path: str) -> LeafClass:
    """Return the class of a leaf; one that its writer did not classify counts as identity, the strictest."""
    return recipe.classes.get(path, "identity")


def identity_leaves(recipe: Recipe) -> dict[str, Json]:
    """Return dotted path → value of the leaves that define the experiment."""
    leaves = leaf_values(recipe)
    return {path: value for path, value in leaves.items() if leaf_class(recipe, path) == "identity"}


def identity_sha256(recipe: Recipe) -> str:
    """Return SHA-256 of the RFC 8785 map path → value of the identity leaves."""
    return digest_of(identity_leaves(recipe))


def lock_differences(lock: RecipeLock, recipe: Recipe) -> list[LeafDifference]:
    """Return where a recipe differs from its lock (`before`) in identity leaves, checkpoint section or target."""
    locked, found = dict(lock.identity), identity_leaves(recipe)
    locked[TARGET_FIELD], found[TARGET_FIELD] = lock.target_step, leaf_values(recipe).get(TARGET_FIELD)
    section = recipe.config.get(CHECKPOINT_SECTION)
    for place, values in ((locked, lock.checkpoint), (found, section)):
        if isinstance(values, Mapping):
            place.update({f"{CHECKPOINT_SECTION}.{key}": value for key, value in values.items()})
    return [
        LeafDifference(
            field=path, before=locked.get(path, ABSENT), after=found.get(path, ABSENT), leaf_class="identity"
        )
        for path in sorted(locked.keys() | found.keys())
        if (path in locked) != (path in found) or not _same(locked[path], found[path])
    ]


def recipe_differences(before: Recipe, after: Recipe) -> list[LeafDifference]:
    """Return every leaf on which two recipes differ, in path order; the stricter class of the two counts."""
    if before is after:  # as nearly every session's and its parent's are
        return []
    old, new = leaf_values(before), leaf_values(after)
    return [
        LeafDifference(
            field=path,
            before=old.get(path, ABSENT),
            after=new.get(path, ABSENT),
            leaf_class=_stricter(before, after, path, in_before=path in old, in_after=path in new),
        )
        for path in sorted(old.keys() | new.keys())
        if (path in old) != (path in new) or not _same(old[path], new[path])
    ]


def _same(a: Json, b: Json) -> bool:
    return digest_of(a) == digest_of(b)  # so that True is not 1 and 1.0 is what it is on disk: 1


def _stricter(before: Recipe, after: Recipe, path: str, *, in_before: bool, in_after: bool) -> LeafClass:
    order: list[LeafClass] = ["identity", "operational", "volatile"]
    found: list[LeafClass] = []
    if in_before:
        found.append(leaf_class(before, path))
    if in_after:
        found.append(leaf_class(after, path))
    return min(found, key=order.index)
