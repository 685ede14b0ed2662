"""What is trained and how it learns: model, optimizer, schedule, number format, guards."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from ledger.config import StrictModel, leaf
from ledger.laws.scaler import parse_scaler_law

__all__ = [
    "Bf16Config",
    "ConstantConfig",
    "CosineConfig",
    "DeterminismConfig",
    "Fp16Config",
    "Fp32Config",
    "GuardConfig",
    "GuardsConfig",
    "ModelConfig",
    "MuonConfig",
    "OptimizerConfig",
    "PrecisionConfig",
    "ScheduleConfig",
    "WsdConfig",
]


class ModelConfig(StrictModel):
    """A decoder-only transformer with rotary positions, grouped-query attention and SwiGLU."""

    vocabulary: int = leaf("identity", 0, ge=0)
    """Entries of the embedding; 0: the vocabulary of the dataset's tokenizer."""
    width: int = leaf("identity", ge=2)
    """Size of the residual stream."""
    layers: int = leaf("identity", ge=1)
    """Blocks of attention and feed-forward."""
    heads: int = leaf("identity", ge=1)
    """Query heads; they divide the width into heads of an even size."""
    kv_heads: int = leaf("identity", ge=1)
    """Heads of keys and values; a divisor of `heads`."""
    hidden: int = leaf("identity", ge=1)
    """Inner size of the feed-forward layer."""
    rope_theta: float = leaf("identity", 10_000.0, gt=0)
    """Base of the rotary angles."""
    norm_epsilon: float = leaf("identity", 1e-5, gt=0)
    """Added to the mean square inside each RMSNorm."""
    tied: bool = leaf("identity", default=True)
    """The embedding is also the projection back to the vocabulary."""

    @model_validator(mode="after")
    def _heads_fit(self) -> ModelConfig:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 2 x heads = {2 * self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} must divide heads {self.heads}")
        return self


class MuonConfig(StrictModel):
    """Momentum orthogonalised by Newton-Schulz iterations, for the matrices inside the blocks."""

    learning_rate: float | None = leaf("identity", None, gt=0)
    """Base rate, which the schedule multiplies; null: that of the other parameters."""
    weight_decay: float | None = leaf("identity", None, ge=0)
    """Decoupled decay, multiplied by the rate; null: that of the other matrices."""
    momentum: float = leaf("identity", 0.95, ge=0, lt=1)
    """Decay of the momentum, per update."""
    nesterov: bool = leaf("identity", default=True)
    """Look one step of momentum ahead."""
    iterations: int = leaf("identity", 5, ge=1, lt=100)
    """Newton-Schulz iterations."""
    match_adamw: bool = leaf("identity", default=True)
    """Scale an update to the size of AdamW's, so that both share a rate; false: by the shape of the matrix."""


class OptimizerConfig(StrictModel):
    """AdamW, for every parameter or for those that Muon leaves; matrices and embeddings decay, norms do not."""

    name: Literal["adamw"] = leaf("identity", "adamw")
    """Which optimizer."""
    learning_rate: float = leaf("identity", gt=0)
    """Base rate, which the schedule multiplies."""
    beta1: float = leaf("identity", 0.9, ge=0, lt=1)
    """Decay of the first moment, per update."""
    beta2: float = leaf("identity", 0.95, ge=0, lt=1)
    """Decay of the second moment, per update."""
    epsilon: float = leaf("identity", 1e-8, gt=0)
    """Added to the root of the second moment."""
    weight_decay: float = leaf("identity", 0.1, ge=0)
    """Decoupled decay of the decaying group, multiplied by the rate."""
    clip_norm: float | None = leaf("identity", 1.0, gt=0)
    """Greatest global gradient norm; null: no clipping (the norm is logged all the same)."""
    fused: bool = leaf("identity", default=True)
    """Use torch's fused kernel; its last bits differ from the plain loop's."""
    muon: MuonConfig | None = leaf("identity", None)
    """Muon for the matrices inside the blocks; null: AdamW everywhere."""


class CosineConfig(StrictModel):
    """Linear warm-up, then half a cosine down to `min_lr_ratio` at the horizon."""

    name: Literal["cosine"] = leaf("identity")
    """Which schedule."""
    warmup_steps: int = leaf("identity", 312, ge=0)
    """Updates of the warm-up; update n of them has n/warmup_steps of the base rate."""
    min_lr_ratio: float = leaf("identity", 0.0, ge=0, le=1)
    """Share of the base rate that is left at the horizon and after it."""
    horizon: int | None = leaf("identity", None, ge=1)
    """Tokens at which the cosine ends; null: fixed at the first start to target x tokens per update."""


class WsdConfig(StrictModel):
    """Warm-up, stable, decay: linear warm-up, the base rate, then linearly to zero at the horizon."""

    name: Literal["wsd"] = leaf("identity")
    """Which schedule."""
    warmup_steps: int = leaf("identity", 312, ge=0)
    """Updates of the warm-up; update n of them has n/warmup_steps of the base rate."""
    decay_fraction: float = leaf("identity", 0.1, ge=0, le=1)
    """Share of the horizon over which the rate decays; never before the warm-up ends; 0: not at all."""
    horizon: int | None = leaf("identity", None, ge=1)
    """Tokens at which the rate is zero; null: fixed at the first start to target x tokens per update."""


class ConstantConfig(StrictModel):
    """Linear warm-up, then the base rate."""

    name: Literal["constant"] = leaf("identity")
    """Which schedule."""
    warmup_steps: int = leaf("identity", 0, ge=0)
    """Updates of the warm-up; update n of them has n/warmup_steps of the base rate."""


ScheduleConfig: TypeAlias = Annotated[CosineConfig | WsdConfig | ConstantConfig, Field(discriminator="name")]
"""The schedules, told apart by `name`."""


class Fp32Config(StrictModel):
    """float32 everywhere."""

    name: Literal["fp32"] = leaf("identity")
    """Number format of the forward and backward pass; parameters and optimizer state are float32 in all of them."""


class Bf16Config(StrictModel):
    """bfloat16 under autocast."""

    name: Literal["bf16"] = leaf("identity")
    """Number format of the forward and backward pass."""


class Fp16Config(StrictModel):
    """float16 under autocast: the loss is scaled so that small gradients survive; an overflow skips the update."""

    name: Literal["fp16"] = leaf("identity")
    """Number format of the forward and backward pass."""
    initial_scale: float = leaf("identity", 65_536.0, gt=0)
    """Loss scale at the beginning."""
    growth_factor: float = leaf("identity", 2.0, gt=1)
    """What the scale is multiplied by after `growth_interval` updates in a row."""
    backoff_factor: float = leaf("identity", 0.5, gt=0, lt=1)
    """What it is multiplied by at an overflow."""
    growth_interval: int = leaf("identity", 2_000, ge=1)
    """Successful updates in a row until the scale grows."""

    @model_validator(mode="after")
    def _is_a_law(self) -> Fp16Config:
        parse_scaler_law(self.model_dump())
        return self


PrecisionConfig: TypeAlias = Annotated[Fp32Config | Bf16Config | Fp16Config, Field(discriminator="name")]
"""The number formats, told apart by `name`."""


class GuardConfig(StrictModel):
    """Refuses an update whose number is out of line with those before it."""

    factor: float = leaf("identity", gt=1)
    """Skip an attempt whose number exceeds this many times the median of the window."""
    window: int = leaf("identity", 64, ge=2, le=4_096)
    """Applied updates that make up the window; nothing is refused until it is full."""


class GuardsConfig(StrictModel):
    """Optional guards; what they refuse counts as skipped, with reason `guard`."""

    loss: GuardConfig | None = leaf("identity", None)
    """Of the loss; null: none."""
    grad_norm: GuardConfig | None = leaf("identity", None)
    """Of the gradient norm before clipping; null: none."""


class DeterminismConfig(StrictModel):
    """What the run promises about repeatability."""

    deterministic: bool = leaf("identity", default=True)
    """Only deterministic algorithms: the same bits again within one environment."""
