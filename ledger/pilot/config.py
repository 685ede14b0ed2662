"""What a pilot rehearses and what it asks of each stage."""

from __future__ import annotations

from ledger.config import StrictModel, leaf

__all__ = [
    "AcceptanceStage",
    "OverfitStage",
    "PilotConfig",
    "PrepareStage",
    "ResumeStage",
    "StabilityStage",
    "TrainingStage",
]


class PrepareStage(StrictModel):
    """Prepare the corpus."""

    configs: list[str] = leaf("identity", min_length=1)
    """Configurations of the preparation, merged in order; relative to the pilot's own file."""


class TrainingStage(StrictModel):
    """What every stage that trains has."""

    configs: list[str] = leaf("identity", min_length=1)
    """Configurations of the trainer, merged in order; relative to the pilot's own file."""


class OverfitStage(TrainingStage):
    """Whether it can learn a deliberately easy problem."""

    max_final_loss: float = leaf("identity", gt=0)
    """Bound on the last train event's loss, in nats."""


class AcceptanceStage(TrainingStage):
    """Whether the full geometry runs, with evaluation and checkpoint."""

    min_checkpoints: int = leaf("identity", 1, ge=1)
    """Checkpoints that must be on the branch."""
    min_evaluations: int = leaf("identity", 1, ge=1)
    """Evaluations that must be on the branch, the complete one at the end included."""


class StabilityStage(TrainingStage):
    """Whether the recipe behaves on successive batches."""

    min_loss_drop: float = leaf("identity", ge=0)
    """Nats by which the mean loss of the last third lies below that of the first third."""
    max_skipped_share: float = leaf("identity", 0.0, ge=0, le=1)
    """Skipped attempts per attempt."""


class ResumeStage(TrainingStage):
    """Whether a killed and resumed run equals one that never stopped."""

    kill_after_step: int = leaf("identity", ge=1)
    """The run is killed as soon as this update is on the log; choose one that is no checkpoint."""


class PilotConfig(StrictModel):
    """One pilot: an ordered list of stages, each read from records alone."""

    name: str = leaf("volatile", min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    """Name of the pilot and of its folder."""
    prepare: PrepareStage
    overfit: OverfitStage
    acceptance: AcceptanceStage
    stability: StabilityStage
    resume: ResumeStage
