"""A small configuration with one of everything, for the tests of loading."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ledger.config import StrictModel, leaf


class Cosine(StrictModel):
    name: Literal["cosine"] = leaf("identity")
    warmup_steps: int = leaf("identity", 312, ge=0)


class Constant(StrictModel):
    name: Literal["constant"] = leaf("identity")


class Optimizer(StrictModel):
    lr: float = leaf("identity", gt=0)
    """The base learning rate."""
    betas: tuple[float, float] = leaf("identity", (0.9, 0.95))


class Experiment(StrictModel):
    optimizer: Optimizer
    schedule: Annotated[Cosine | Constant, Field(discriminator="name")] = Cosine(name="cosine")
    country: str = leaf("volatile", "nowhere")
    batch: int = leaf("identity", 8, ge=1)
    workers: int | Literal["auto"] = leaf("operational", 1)
    compiled: bool = leaf("operational", default=False)
    validation: Optimizer | None = leaf("identity", None)
    layers: tuple[int, ...] = leaf("identity", ())
    weights: dict[str, float] = leaf("identity", default_factory=dict)

    @model_validator(mode="after")
    def _check_workers(self) -> Experiment:
        if self.workers == self.batch:
            raise ValueError("as many workers as sequences")
        return self
