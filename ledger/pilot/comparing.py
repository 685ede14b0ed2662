"""A recipe against a lock: everything in which they differ, what the lock holds first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ledger.locks import recipe_of_lock
from ledger.recipes import CHECKPOINT_SECTION, TARGET_FIELD, lock_differences, recipe_differences
from ledger.records.documents import Environment, Recipe
from ledger.records.fields import Json
from ledger.records.locks import RecipeLock
from ledger.records.parts import DataIdentities

__all__ = [
    "Difference",
    "DifferenceKind",
    "environment_differences",
    "held_differences",
    "recipe_against_lock",
]

DifferenceKind = Literal[
    "identity", "target", "checkpoint", "data", "parts", "operational", "volatile", "environment"
]
HELD: tuple[DifferenceKind, ...] = ("identity", "target", "checkpoint", "data", "parts")
"""What a lock holds; a difference in one of these refuses a run."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing on which a lock (`before`) and a recipe differ."""

    kind: DifferenceKind
    field: str
    before: Json
    after: Json

    @property
    def is_held(self) -> bool:
        """Whether the lock forbids it."""
        return self.kind in HELD

    def __str__(self) -> str:
        return f"{self.field}: {_shown(self.before)} -> {_shown(self.after)}"


def _shown(value: Json) -> str:
    return "absent" if value is None else str(value) if isinstance(value, str) else repr(value)


def recipe_against_lock(
    lock: RecipeLock, recipe: Recipe, *, data: DataIdentities | None, parts: Mapping[str, int] | None
) -> list[Difference]:
    """Return every difference, held or free; `data` and `parts` are compared where they are known."""
    return [*held_differences(lock, recipe, data=data, parts=parts), *_free(lock, recipe)]


def held_differences(
    lock: RecipeLock, recipe: Recipe, *, data: DataIdentities | None, parts: Mapping[str, int] | None
) -> Iterator[Difference]:
    """Yield what the lock forbids: another recipe, target, checkpoint policy, other data, other versions of parts."""
    for found in lock_differences(lock, recipe):
        yield Difference(kind=_kind(found.field), field=found.field, before=found.before, after=found.after)
    if data is not None:
        for name in ("train", "validation"):
            before, after = getattr(lock.data, name), getattr(data, name)
            if before != after:
                yield Difference(
                    kind="data", field=f"identity of the {name} data", before=before, after=after
                )
    if parts is not None and lock.parts:
        for name in sorted(lock.parts.keys() | parts.keys()):
            before, after = lock.parts.get(name), parts.get(name)
            if before != after:
                yield Difference(kind="parts", field=f"version of {name}", before=before, after=after)


def _kind(field: str) -> DifferenceKind:
    if field == TARGET_FIELD:
        return "target"
    return "checkpoint" if field.startswith(f"{CHECKPOINT_SECTION}.") else "identity"


def _free(lock: RecipeLock, recipe: Recipe) -> Iterator[Difference]:
    if not (lock.operational or lock.volatile):
        return
    for found in recipe_differences(recipe_of_lock(lock), recipe):
        is_free = found.leaf_class != "identity" and _kind(found.field) == "identity"
        if is_free:
            yield Difference(kind=found.leaf_class, field=found.field, before=found.before, after=found.after)


def environment_differences(lock: RecipeLock, environment: Environment) -> Iterator[Difference]:
    """Yield where the machine is another than the pilots'; none of it is held, and all of it weakens the claim."""
    found: dict[str, Json] = {
        "python": environment.python,
        "platform": environment.platform,
        "hardware": environment.hardware,
        "settings": environment.settings,
    }
    before: dict[str, Json] = {
        **lock.environment,
        **{f"package {name}": one for name, one in lock.packages.items()},
    }
    after = {name: found[name] for name in lock.environment if name in found}
    after |= {f"package {name}": environment.packages.get(name) for name in lock.packages}
    if lock.code.get("commit") is not None:
        before["code"], after["code"] = lock.code, environment.code
    for name in sorted(before):
        if before[name] != after.get(name):
            yield Difference(kind="environment", field=name, before=before[name], after=after.get(name))
