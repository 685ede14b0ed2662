"""The recipe of a training run: every setting, its meaning, unit and class. Imports no torch.

A leaf is *identity* (another value is another experiment; refused on resume), *operational* (how it is carried out
and watched; may change) or *volatile* (where and under which name). What the machine is stands in the run's
environment record, not here.
"""

from __future__ import annotations

from typing import Final

from ledger.config import StrictModel, leaf, require_leaf_classes
from trainer.config.inputs import BatchConfig, DataConfig, ShuffleConfig, SourceConfig
from trainer.config.learning import (
    Bf16Config,
    ConstantConfig,
    CosineConfig,
    DeterminismConfig,
    Fp16Config,
    Fp32Config,
    GuardConfig,
    GuardsConfig,
    ModelConfig,
    MuonConfig,
    OptimizerConfig,
    PrecisionConfig,
    ScheduleConfig,
    WsdConfig,
)
from trainer.config.running import (
    BudgetConfig,
    CheckpointConfig,
    EvaluationConfig,
    LimitsConfig,
    LoggingConfig,
    MachineConfig,
    ProfilerConfig,
    RunConfig,
)

__all__ = [
    "FOREIGN_SECTIONS",
    "BatchConfig",
    "Bf16Config",
    "BudgetConfig",
    "CheckpointConfig",
    "ConstantConfig",
    "CosineConfig",
    "DataConfig",
    "DeterminismConfig",
    "EvaluationConfig",
    "Fp16Config",
    "Fp32Config",
    "GuardConfig",
    "GuardsConfig",
    "LimitsConfig",
    "LoggingConfig",
    "MachineConfig",
    "ModelConfig",
    "MuonConfig",
    "OptimizerConfig",
    "PrecisionConfig",
    "ProfilerConfig",
    "RunConfig",
    "ScheduleConfig",
    "ShuffleConfig",
    "SourceConfig",
    "TrainerConfig",
    "WsdConfig",
]


FOREIGN_SECTIONS: Final = ("pilot",)
"""Sections of a configuration that say nothing of the run itself: how it is rehearsed is the pilot's business."""


class TrainerConfig(StrictModel):
    """The complete configuration of a training run."""

    run: RunConfig
    data: DataConfig
    batch: BatchConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig = CosineConfig(name="cosine")
    precision: PrecisionConfig = Fp32Config(name="fp32")
    guards: GuardsConfig = GuardsConfig()
    determinism: DeterminismConfig = DeterminismConfig()
    logging: LoggingConfig = LoggingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    limits: LimitsConfig = LimitsConfig()
    profiler: ProfilerConfig | None = leaf("operational", None)
    """A window of updates under torch's profiler; null: none."""
    machine: MachineConfig = MachineConfig()

    @property
    def target_step(self) -> int:
        """Successful updates to reach; known once the recipe is resolved (`trainer.recipe.fix_end`)."""
        if self.run.target_step is None:
            raise ValueError("the target step follows from a budget that was not resolved yet")
        return self.run.target_step

    @property
    def tokens_per_update(self) -> int:
        """Target positions of one accumulation window."""
        return self.batch.tokens_per_microbatch * self.batch.accumulation


require_leaf_classes(TrainerConfig)
