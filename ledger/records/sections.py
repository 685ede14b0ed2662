"""The sections of a recipe that the ledger's rules read, typed leniently.

A recipe belongs to its writer: the ledger types what it needs and ignores the rest. A section that is absent makes
the rules that read it not applicable; a section that is there but malformed is an error of the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

__all__ = ["RecipeSections", "parse_sections"]


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class BatchSection(_Section):
    """The geometry of one update."""

    accumulation: int = Field(ge=1, description="Microbatches of one accumulation window.")


class DataSection(_Section):
    """What is read."""

    path: str | None = Field(default=None, description="Where the dataset lay when the session started.")
    repeat: int | None = Field(
        default=None, ge=1, description="The first N microbatches are the whole source."
    )


class MuonSection(_Section):
    """What Muon has of its own."""

    learning_rate: float | None = Field(
        default=None, gt=0, description="Base rate of group muon; null: the optimizer's."
    )


class OptimizerSection(_Section):
    """Base rate and clipping."""

    learning_rate: float = Field(gt=0, description="Base rate of every group.")
    clip_norm: float | None = Field(default=None, gt=0, description="Norm limit; null: no clipping.")
    muon: MuonSection | None = Field(default=None, description="Null: every group has the one base rate.")

    def base_rate(self, group: str) -> float:
        """Return the base rate of a group."""
        own = self.muon.learning_rate if self.muon is not None and group == "muon" else None
        return self.learning_rate if own is None else own


class LoggingSection(_Section):
    """How much evidence the log holds."""

    interval: int = Field(ge=1, description="Successful updates between train events.")
    evidence: bool = Field(default=False, description="State digests with every train event.")


class CheckpointSection(_Section):
    """What is kept."""

    policy: Literal["none", "final", "interval", "explicit"]
    interval: int | None = Field(default=None, ge=1)


class EvaluationSection(_Section):
    """Whether and when held-out text is measured."""

    interval: int | None = Field(
        default=None, ge=1, description="Updates between evaluations; null: only at the end."
    )
    enabled: bool = Field(default=True, description="False: the recipe has no validation.")


class DeterminismSection(_Section):
    """What the recipe declares about repeatability."""

    deterministic: bool


class TargetSection(_Section):
    """Where the run ends."""

    target_step: int = Field(ge=0)


class RecipeSections(_Section):
    """Every section that a rule reads; None where the recipe has none."""

    run: TargetSection | None = None
    batch: BatchSection | None = None
    data: DataSection | None = None
    optimizer: OptimizerSection | None = None
    schedule: dict[str, Any] | None = None
    precision: dict[str, Any] | None = None
    logging: LoggingSection | None = None
    checkpoint: CheckpointSection | None = None
    evaluation: EvaluationSection | None = None
    determinism: DeterminismSection | None = None


def parse_sections(config: Mapping[str, Any]) -> RecipeSections:
    """Return the typed sections of a recipe's configuration.

    Raises:
        ValueError: a section that rules read is malformed; the message names it.
    """
    try:
        return RecipeSections.model_validate(dict(config))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
