"""What a training loop tells the recorder: what runs, where it stands, what it measured."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledger.checkpoints import CompleteCheckpoint
from ledger.records.documents import Environment, Recipe
from ledger.records.fields import Json, Measurement, as_measurements
from ledger.records.locks import RecipeLock
from ledger.records.parts import (
    BranchMode,
    Cursor,
    DataIdentities,
    ModelSummary,
    OptimizerGroup,
    Purpose,
    Start,
    StateDigests,
)
from ledger.storage.canonical import digest_of

__all__ = ["EvaluationResult", "LiveState", "SessionDigests", "SessionPlan", "cursor_json"]


def cursor_json(cursor: Cursor) -> dict[str, dict[str, int]]:
    """Return a cursor as plain JSON values."""
    return {source: {"epoch": at.epoch, "offset": at.offset} for source, at in cursor.items()}


@dataclass(frozen=True, kw_only=True)
class LiveState:
    """The live training state, as the loop reads it off its objects.

    `model` and `optimizer` are SHA-256 over their tensors (`ledger.storage.digests.tensor_table_sha256`); the rest
    is what `trainer.json` stores of schedule position, random generators, gradient scaler and guards. A scaler is
    `{"scale": number, "growth_tracker": number}`, so that the audit can follow it.
    """

    model: str | None
    optimizer: str | None
    schedule: Json = None
    rng: Json = None
    scaler: Json = None
    guards: Json = None

    @property
    def loss_scale(self) -> tuple[float | None, int | None]:
        """The scaler's scale and growth tracker; None where there is none."""
        if not isinstance(self.scaler, Mapping):
            return None, None
        return self.scaler.get("scale"), self.scaler.get("growth_tracker")

    def digests(self, cursor: Cursor) -> StateDigests:
        """Return the digest of each part; null where there is none."""
        return StateDigests(
            model=self.model,
            optimizer=self.optimizer,
            schedule=_digest(self.schedule),
            cursor=_digest(cursor_json(cursor)),
            rng=_digest(self.rng),
            scaler=_digest(self.scaler),
            guards=_digest(self.guards),
        )


def _digest(value: Json) -> str | None:
    return None if value is None else digest_of(value)


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """What a session is about to run, and from where.

    The recipe decides what the recorder needs of it: accumulation, target, logging interval, clipping limit,
    per-update evidence (see `ledger.records.sections`).
    """

    recipe: Recipe
    environment: Environment
    data: DataIdentities
    tokens_per_microbatch: int
    """Target positions of one microbatch on all replicas together."""
    cursor: Cursor
    """Where each source stands before the first microbatch."""
    name: str
    purpose: Purpose = "full"
    model: ModelSummary = field(default_factory=lambda: ModelSummary(parameters={}))
    optimizer: Sequence[OptimizerGroup] = ()
    data_parallel: int = 1
    start: Start = "fresh"
    parent: CompleteCheckpoint | None = None
    """The checkpoint that the live objects were restored from."""
    mode: BranchMode | None = None
    """How a branch run takes over `parent`, which is then a checkpoint of another run; None: it is of this run."""
    recipe_lock: RecipeLock | None = None
    """The lock that the run is started under; a later session finds it in the run."""
    amendment_reason: str = "changed in the configuration"
    argv: Sequence[str] = field(default_factory=lambda: list(sys.argv))


@dataclass(frozen=True, kw_only=True)
class SessionDigests:
    """The digests by which a session's records name its recipe and environment."""

    recipe_sha256: str
    identity_sha256: str
    environment_sha256: str


@dataclass(frozen=True, kw_only=True)
class EvaluationResult:
    """One measurement on held-out text.

    `loss` is token-weighted cross-entropy in nats over `tokens` target positions in `batches` batches; `complete`
    means that these were all target positions of the split. The RNG digests are of all generators, before and
    after.
    """

    split: str
    data_sha256: str
    loss: float
    tokens: int
    batches: int
    complete: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    rng_before: str | None = None
    rng_after: str | None = None

    def recorded_metrics(self) -> dict[str, Measurement]:
        """Return the metrics as records write them."""
        return as_measurements(self.metrics)
