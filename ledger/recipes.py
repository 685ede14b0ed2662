"""Recipes compared leaf by leaf: identity, differences, permitted changes. Pure; knows no files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ledger.records.documents import LeafClass, Recipe
from ledger.records.fields import Json
from ledger.storage.canonical import digest_of

__all__ = ["TARGET_FIELD", "LeafDifference", "identity_sha256", "leaf_values", "recipe_differences"]

TARGET_FIELD: Final = "run.target_step"
"""The one leaf that decides when a run is complete."""

ABSENT: Final = None
"""What a leaf that one side does not have compares as."""


@dataclass(frozen=True, kw_only=True)
class LeafDifference:
    """One leaf on which two recipes differ."""

    field: str
    before: Json
    after: Json
    leaf_class: LeafClass

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


def identity_sha256(recipe: Recipe) -> str:
    """Return SHA-256 of the RFC 8785 map path → value of the identity leaves."""
    leaves = leaf_values(recipe)
    return digest_of(
        {path: value for path, value in leaves.items() if leaf_class(recipe, path) == "identity"}
    )


def recipe_differences(before: Recipe, after: Recipe) -> list[LeafDifference]:
    """Return every leaf on which two recipes differ, in path order; the stricter class of the two counts."""
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
