"""What events and documents both hold: counters, cursors, state digests, lineage.

Each part is a msgspec struct; `Part` lets pydantic documents hold it too, so that every concept has one definition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ledger.records.fields import Count, Name, Positive, Sha256, Text

__all__ = [
    "COUNTER_NAMES",
    "NOTHING_SUPERSEDED",
    "ZERO",
    "At",
    "BranchMode",
    "Counters",
    "Cursor",
    "DataIdentities",
    "FileRef",
    "LogPosition",
    "ModelSummary",
    "OptimizerGroup",
    "Parent",
    "Part",
    "Position",
    "Purpose",
    "RunFacts",
    "RunParent",
    "Start",
    "StateDigests",
    "StoredFile",
    "Superseded",
    "add_counters",
    "subtract_counters",
]

Purpose = Literal["smoke", "overfit", "acceptance", "stability", "resume", "full"]
Start = Literal["fresh", "resume", "auto", "restart", "branch"]

COUNTER_NAMES = ("step", "attempts", "skipped", "microbatches", "tokens_seen", "loss_tokens")
"""The six running totals, in the order in which every record lists them."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the shared parts: strict in msgspec, and usable as a field type of a pydantic document."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Validate by msgspec, serialise to plain JSON values."""
        return core_schema.no_info_plain_validator_function(
            cls._from_json,
            serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the JSON Schema of this part with the parts that it holds written out in place."""
        (root,), components = msgspec.json.schema_components((cls,), ref_template="{name}")
        inlined: dict[str, Any] = _inline(root, components)
        return inlined

    @classmethod
    def _from_json(cls, value: object) -> Part:
        if isinstance(value, cls):
            return value
        try:
            return msgspec.convert(value, cls, strict=True)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error


def _inline(schema: Any, components: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_inline(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inline(components[schema["$ref"]], components)
    inlined = {key: _inline(value, components) for key, value in schema.items()}
    if isinstance(inlined.get("pattern"), str):  # JSON Schema speaks the JavaScript dialect
        inlined["pattern"] = inlined["pattern"].replace(r"\A", "^").replace(r"\Z", "$")
    return inlined


class Counters(Part, frozen=True):
    """The six running totals; see "Counters: the words" in the records reference."""

    step: Count
    attempts: Count
    skipped: Count
    microbatches: Count
    tokens_seen: Count
    loss_tokens: Count


ZERO = Counters(0, 0, 0, 0, 0, 0)
"""Where a fresh run starts."""


def subtract_counters(after: Counters, before: Counters) -> Counters:
    """Return `after - before`, counter by counter; a counter that fell counts as 0."""
    return Counters(*[max(0, getattr(after, name) - getattr(before, name)) for name in COUNTER_NAMES])


def add_counters(totals: Iterable[Counters]) -> Counters:
    """Return the sum, counter by counter."""
    values = list(totals)
    return Counters(*[sum(getattr(value, name) for value in values) for name in COUNTER_NAMES])


class At(Part, frozen=True):
    """The moment a checkpoint captured: the six counters and the `seq` of the last event before it."""

    step: Count
    attempts: Count
    skipped: Count
    microbatches: Count
    tokens_seen: Count
    loss_tokens: Count
    seq: Count

    @property
    def counters(self) -> Counters:
        """The six counters alone."""
        return Counters(**{name: getattr(self, name) for name in COUNTER_NAMES})


class Position(Part, frozen=True):
    """Where reading stands in one source: tokens consumed by all replicas in this epoch's order."""

    epoch: Count
    offset: Count


Cursor = dict[str, Position]
"""Source name to position, taken behind the last consumed batch."""


class StateDigests(Part, frozen=True):
    """SHA-256 of each part of the live training state; null where there is none."""

    model: Sha256 | None
    optimizer: Sha256 | None
    schedule: Sha256 | None
    cursor: Sha256 | None
    rng: Sha256 | None
    scaler: Sha256 | None
    guards: Sha256 | None


class DataIdentities(Part, frozen=True):
    """`metadata_sha256` of the dataset that holds each split; null where the split is not used."""

    train: Sha256
    validation: Sha256 | None


class FileRef(Part, frozen=True):
    """A file inside the run folder and the digest of its bytes."""

    path: Text
    sha256: Sha256


class StoredFile(Part, frozen=True):
    """Size and digest of a file as it was written."""

    bytes: Count
    sha256: Sha256


class LogPosition(Part, frozen=True):
    """A line of the log and its chain digest: what pins a document on the log."""

    seq: Count
    chain: Sha256


class Parent(Part, frozen=True):
    """The checkpoint that a session starts from."""

    run: Name
    session: Positive
    step: Count
    checkpoint: Text
    manifest_sha256: Sha256


BranchMode = Literal["continue", "initialise"]
"""What a branch run takes over: counters, state and identity but for the schedule, or weights alone from 0."""


class RunParent(Part, frozen=True):
    """The checkpoint of another run that a branch run starts from, and what it takes over."""

    run: Name
    manifest_sha256: Sha256
    mode: BranchMode


class Superseded(Part, frozen=True):
    """What was on the current branch before this session and no longer is."""

    updates: Count
    attempts: Count
    microbatches: Count
    tokens: Count
    events: Count


NOTHING_SUPERSEDED = Superseded(0, 0, 0, 0, 0)


class ModelSummary(Part, frozen=True):
    """Trainable parameters of each part of the model."""

    parameters: dict[str, Count]


class OptimizerGroup(Part, frozen=True):
    """One group of the optimizer's partition."""

    name: Name
    tensors: Count
    parameters: Count


class RunFacts(Part, frozen=True):
    """What run.json says of the whole run; it stands in the first `session_start`."""

    name: Annotated[str, Meta(min_length=1, max_length=256)]
    purpose: Purpose
    parent: RunParent | None
    recipe_lock_sha256: Sha256 | None
    model: ModelSummary
    optimizer: list[OptimizerGroup]
    target_step: Count
    planned_tokens: Count
