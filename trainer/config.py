"""The recipe of a training run: every setting, its meaning, unit and class. Imports no torch.

A leaf is *identity* (another value is another experiment; refused on resume), *operational* (how it is carried out
and watched; may change) or *volatile* (where and under which name). What the machine is stands in the run's
environment record, not here.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from ledger.config import StrictModel, leaf, require_leaf_classes
from ledger.records.parts import Purpose

__all__ = [
    "BatchConfig",
    "CheckpointConfig",
    "ConstantConfig",
    "CosineConfig",
    "DataConfig",
    "DeterminismConfig",
    "EvaluationConfig",
    "LimitsConfig",
    "LoggingConfig",
    "MachineConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PrecisionConfig",
    "RunConfig",
    "ScheduleConfig",
    "ShuffleConfig",
    "SourceConfig",
    "TrainerConfig",
]


class RunConfig(StrictModel):
    """What the run is called, what it is for and where it ends."""

    name: str = leaf("volatile", min_length=1, max_length=256)
    """What people call it."""
    purpose: Purpose = leaf("volatile", "full")
    """What the run is for: smoke, overfit, acceptance, stability, resume or full."""
    directory: str | None = leaf("volatile", None, min_length=1)
    """Folder of the run's records; null: given on the command line."""
    target_step: int = leaf("operational", ge=1, le=2**53 - 1)
    """Successful optimizer updates to reach. On resume it may only be raised."""
    seed: int = leaf("identity", 0, ge=0, lt=2**32)
    """Seed of every random generator (Python, NumPy, torch), set once at the run's beginning."""


class ShuffleConfig(StrictModel):
    """Reading in shuffled order, within groups of consecutive shards: two groups are in memory at a time."""

    group_shards: int = leaf("identity", ge=1)
    """Shards of one group, in file order; their sequences are read in an order that each epoch draws anew."""
    seed: int = leaf("identity", 0, ge=0, lt=2**53)
    """Seed of the order."""


class SourceConfig(StrictModel):
    """One source of a mix."""

    path: str = leaf("volatile", min_length=1)
    """Folder of its prepared dataset, made with the tokenizer of `data.path`."""
    weight: float = leaf("identity", gt=0)
    """Its expected share of the microbatches is this over the sum of all weights."""
    metadata_sha256: str | None = leaf("identity", None, pattern=r"^[0-9a-f]{64}$")
    """Identity of its dataset; null: that of the dataset found at the first start."""


SourceName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$")]
"""Name of a source in cursors and reports; without dots, which separate the keys of a configuration."""


class DataConfig(StrictModel):
    """What is read, and in which order."""

    path: str = leaf("volatile", min_length=1)
    """Folder of the prepared dataset; with a mix, of the one whose held-out text is measured."""
    metadata_sha256: str | None = leaf("identity", None, pattern=r"^[0-9a-f]{64}$")
    """Identity of the dataset; null: that of the dataset found at the first start."""
    repeat: int | None = leaf("identity", None, ge=1)
    """The first N microbatches are the whole training source, read again in every epoch; null: all of it."""
    shuffle: ShuffleConfig | None = leaf("identity", None)
    """Shuffle within groups of shards; null: the order of the shards, the same in every epoch."""
    packing: Literal["stream", "documents"] = leaf("identity", "stream")
    """stream: nothing is masked; documents: attention and loss stop at the end of each document."""
    sources: dict[SourceName, SourceConfig] | None = leaf("identity", None, min_length=1)
    """A mix: name to dataset and weight; each microbatch reads one of them. Null: the dataset of `path` alone."""
    mix_seed: int = leaf("identity", 0, ge=0, lt=2**53)
    """Seed of the choice of a source for each microbatch."""
    prefetch: int = leaf("operational", 2, ge=0)
    """Microbatches fetched ahead in a thread; 0: none. It changes neither bytes nor cursors."""
    verify: bool = leaf("operational", default=False)
    """Rehash the dataset's files in the background while training; a damaged one fails the run."""

    @model_validator(mode="after")
    def _sources_fit(self) -> DataConfig:
        if self.sources is not None and self.repeat is not None:
            raise ValueError(
                "repeat and sources exclude each other: a mix has no first microbatches of its own"
            )
        return self


class BatchConfig(StrictModel):
    """The geometry of one optimizer update."""

    micro_batch: int = leaf("identity", ge=1)
    """Sequences of one forward and backward pass."""
    sequence: int = leaf("identity", ge=1)
    """Tokens of one sequence."""
    accumulation: int = leaf("identity", 1, ge=1)
    """Microbatches of one accumulation window, that is of one attempted update."""

    @property
    def tokens_per_microbatch(self) -> int:
        """Target positions of one microbatch."""
        return self.micro_batch * self.sequence


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


class OptimizerConfig(StrictModel):
    """AdamW; tensors of two or more dimensions decay, norms do not."""

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


class ConstantConfig(StrictModel):
    """Linear warm-up, then the base rate."""

    name: Literal["constant"] = leaf("identity")
    """Which schedule."""
    warmup_steps: int = leaf("identity", 0, ge=0)
    """Updates of the warm-up; update n of them has n/warmup_steps of the base rate."""


ScheduleConfig: TypeAlias = Annotated[CosineConfig | ConstantConfig, Field(discriminator="name")]
"""The schedules, told apart by `name`."""


class PrecisionConfig(StrictModel):
    """Number format of the forward and backward pass; parameters and optimizer state are float32 in both."""

    name: Literal["fp32", "bf16"] = leaf("identity", "fp32")
    """fp32, or bf16 under autocast."""


class DeterminismConfig(StrictModel):
    """What the run promises about repeatability."""

    deterministic: bool = leaf("identity", default=True)
    """Only deterministic algorithms: the same bits again within one environment."""


class LoggingConfig(StrictModel):
    """How much evidence the log holds."""

    interval: int = leaf("operational", 10, ge=1)
    """Successful updates between train events; they fall on multiples of it."""
    evidence: bool = leaf("operational", default=False)
    """Digests of the whole training state with every train event (costs a hash of it each time)."""


class EvaluationConfig(StrictModel):
    """Whether, when and on how much held-out text the loss is measured."""

    enabled: bool = leaf("operational", default=True)
    """False: no validation at all, not even at the end."""
    interval: int | None = leaf("operational", None, ge=1)
    """Successful updates between evaluations of the subset; null: only the complete split, at the end."""
    batches: int = leaf("operational", 8, ge=1)
    """Size of the subset: the first N evaluation batches of the split."""
    micro_batch: int = leaf("operational", 8, ge=1)
    """Sequences of one evaluation batch. A mean's last bits depend on it, so keep it fixed."""


class CheckpointConfig(StrictModel):
    """Which states are kept."""

    policy: Literal["none", "final", "interval"] = leaf("operational", "final")
    """none: no weights at all; final: at the target; interval: every `interval` updates and at the target."""
    interval: int | None = leaf("operational", None, ge=1)
    """Successful updates between checkpoints of the interval policy."""

    @model_validator(mode="after")
    def _interval_fits(self) -> CheckpointConfig:
        if self.policy == "interval" and self.interval is None:
            raise ValueError("policy interval needs an interval, in updates")
        return self


class LimitsConfig(StrictModel):
    """When to give up."""

    consecutive_skips: int = leaf("operational", 8, ge=1)
    """Attempts skipped in a row (non-finite loss or gradient) that end the run as failed."""


class MachineConfig(StrictModel):
    """What to run on."""

    device: str = leaf("volatile", "cpu", pattern=r"^(cpu|cuda(:[0-9]+)?)$")
    """cpu, cuda or cuda:N."""
    threads: int = leaf("volatile", 1, ge=1)
    """Threads of one operation on the CPU; they decide the last bits and stand in the environment record."""


class TrainerConfig(StrictModel):
    """The complete configuration of a training run."""

    run: RunConfig
    data: DataConfig
    batch: BatchConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = CosineConfig(name="cosine")
    precision: PrecisionConfig = PrecisionConfig()
    determinism: DeterminismConfig = DeterminismConfig()
    logging: LoggingConfig = LoggingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    limits: LimitsConfig = LimitsConfig()
    machine: MachineConfig = MachineConfig()

    @property
    def tokens_per_update(self) -> int:
        """Target positions of one accumulation window."""
        return self.batch.tokens_per_microbatch * self.batch.accumulation


require_leaf_classes(TrainerConfig)
