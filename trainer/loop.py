"""The training loop: windows of microbatches become attempts, attempts become steps, steps become the run.

It computes and says what it did; counting, logging and committing are the recorder's work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from ledger.checkpoints import CompleteCheckpoint
from ledger.dataset.manifest import Dataset
from ledger.errors import LedgerError
from ledger.recorder import RunRecorder
from ledger.records.events import CheckpointKind, SessionStatus, SkipReason
from trainer.checkpoint import write_tensors, write_weights
from trainer.config import TrainerConfig
from trainer.data import IGNORED, Batch, TrainingData
from trainer.environment import peak_memory
from trainer.evaluate import BrokenOffError, evaluate
from trainer.milestones import Calendar
from trainer.precision import autocast, clip_gradients, gradient_norm, reason_to_skip
from trainer.profiling import Profiling
from trainer.report import Report
from trainer.signals import StopRequest
from trainer.sources import VALIDATION_SPLIT
from trainer.state import TrainingState

__all__ = ["Training", "TrainingFailedError", "fit"]

ADVICE: Final[dict[SkipReason, str]] = {
    "overflow": "lower precision.initial_scale, allow more skips in a row",
    "nonfinite_loss": "lower the learning rate or lengthen the warm-up",
    "nonfinite_grad": "lower the learning rate or lengthen the warm-up",
    "guard": "widen the guards, or lower the learning rate",
}
"""What may help against skips of each kind."""


class TrainingFailedError(LedgerError):
    """Training cannot go on: too many attempts in a row were skipped."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """Everything one session trains with."""

    config: TrainerConfig
    dataset: Dataset
    data: TrainingData
    state: TrainingState
    recorder: RunRecorder
    report: Report
    stop: StopRequest
    profiling: Profiling
    calendar: Calendar


def fit(training: Training) -> SessionStatus:
    """Train until the target is reached or somebody asks to stop; return how the session ended."""
    recorder, stop = training.recorder, training.stop
    if recorder.checkpoint_here is not None:
        finish_step(training)  # the session before may have been asked to stop before it could
    while recorder.step < recorder.target_step and not stop.is_made:
        switch_profiler(training)
        loss = process_window(training)
        if attempt_update(training, loss):
            finish_step(training)
    switch_profiler(training)
    record_verified(training)
    if stop.made_at is None and measure_final(training, save(training, "final")):
        return recorder.end()
    return recorder.end("interrupted", reason=save_in_time(training))


def switch_profiler(training: Training) -> None:
    """Start or stop the profiler where the recipe says so."""
    recorder = training.recorder
    if not training.profiling.is_due(recorder.step):
        return
    with recorder.phase("profile"):
        trace = training.profiling.switch(step=recorder.step, session=recorder.session)
    if trace is not None:
        training.report.say(f"step {recorder.step:,}  profiler trace {trace}")


def process_window(training: Training) -> float:
    """Run the microbatches of one accumulation window forward and backward; return their mean loss in nats.

    The mean is over all positions of the window that count: the window is drawn first, to know how many there are.
    """
    recorder = training.recorder
    with recorder.phase("data"):
        window = [training.data.next() for _ in range(training.config.batch.accumulation)]
    counted = max(1, sum(batch.loss_tokens for batch in window))
    losses = []
    for batch in window:
        loss = forward(training, batch) / counted
        (loss * training.state.scaler.scale).backward()  # type: ignore[no-untyped-call]
        recorder.microbatch(
            tokens=batch.tokens, loss_tokens=batch.loss_tokens, digest=batch.digest, cursor=batch.cursor
        )
        record_verified(training)
        losses.append(loss.detach())
    return torch.stack(losses).double().sum().item()


def forward(training: Training, batch: Batch) -> Tensor:
    """Return the sum of a microbatch's cross-entropy in nats over the positions that count, in float32."""
    with autocast(training.config.precision, batch.inputs.device):
        logits = training.state.model(batch.inputs, batch.documents)
    return functional.cross_entropy(
        logits.float().flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )


def record_verified(training: Training) -> None:
    """Record the files that were rehashed in the background; raises `VerificationError` where one is damaged."""
    for file in training.data.verified():
        training.recorder.data_verified(shard=file.name, sha256=file.sha256, seconds=file.seconds)


def attempt_update(training: Training, loss: float) -> bool:
    """Apply the window's gradients and tell whether that happened; what is not finite never reaches the optimizer."""
    state, recorder = training.state, training.recorder
    parameters = list(state.model.parameters())
    state.scaler.unscale(parameters)
    norm = gradient_norm(parameters).item()
    reason = reason_to_skip(loss=loss, grad_norm=norm, is_scaled=state.scaler.loss_scale is not None)
    if reason is None and state.guards.refuse(loss=loss, grad_norm=norm):
        reason = "guard"
    if reason is not None:
        skip_update(training, reason, loss=loss, norm=norm)
        return False
    clip_gradients(parameters, norm=norm, limit=training.config.optimizer.clip_norm)
    rates = state.optimizer.set_rates(state.schedule.next_rates())
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.schedule.advance()
    state.scaler.updated()
    state.guards.updated(loss=loss, grad_norm=norm)
    recorder.updated(
        loss=loss,
        grad_norm=norm,
        lr=rates,
        loss_scale=state.scaler.loss_scale,
        growth_tracker=state.scaler.growth_tracker,
        memory=peak_memory(training.config.machine.device),
    )
    with recorder.phase("report"):
        training.report.step(recorder.counters, loss=loss, grad_norm=norm, rates=rates)
    return True


def skip_update(training: Training, reason: SkipReason, *, loss: float, norm: float) -> None:
    """Drop the window's gradients: its data was processed, the optimizer does not move."""
    state, recorder = training.state, training.recorder
    state.optimizer.zero_grad()
    scales = state.scaler.skipped(reason)
    recorder.skipped(
        reason, loss=loss, grad_norm=norm, loss_scale=scales, growth_tracker=state.scaler.growth_tracker
    )
    refuse_endless_skips(training, reason)


def refuse_endless_skips(training: Training, reason: SkipReason) -> None:
    """Raise `TrainingFailedError` after as many skips in a row as the recipe allows, or when no loss scale is left."""
    skips, limit = training.recorder.consecutive_skips, training.config.limits.consecutive_skips
    has_scale = training.state.scaler.scale > 0
    if skips < limit and has_scale:
        return
    raise TrainingFailedError(
        f"{skips} attempts in a row were skipped, the last one for {reason}",
        place=f"after step {training.recorder.step}",
        expected=f"fewer than limits.consecutive_skips = {limit}" if has_scale else "a loss scale above 0",
        advice=f"{ADVICE[reason]}, and look at the overflow events of the log",
    )


def finish_step(training: Training) -> None:
    """Do what is due at this step: first the evaluation of the subset, then the checkpoint.

    Nothing once somebody asked to stop: the time that is left is for the last checkpoint, and the next session begins
    with what is due at the step where it starts.
    """
    if training.stop.made_at is not None:
        return
    recorder, config, calendar = training.recorder, training.config, training.calendar
    step = recorder.step
    is_to_measure = calendar.has_evaluation(step) and not recorder.has_evaluated(step)
    if is_to_measure and not measure(training, batches=config.evaluation.batches):
        return
    kind = calendar.checkpoint_kind(step)
    if kind is None or step == recorder.target_step:
        return
    if config.checkpoint.training_state:
        save(training, kind)
    else:
        export(training)
    if config.checkpoint.keep_last is not None:
        for path in recorder.prune(keep_last=config.checkpoint.keep_last):
            training.report.pruned(path)


def save_in_time(training: Training) -> str:
    """Save before the process is killed, if a checkpoint fits the time that is left; return the reason of the end.

    How long one takes is known from the last one; without one it is tried.
    """
    recorder, stop, limits = training.recorder, training.stop, training.config.limits
    left, needed = stop.seconds_left(grace_seconds=limits.grace_seconds), recorder.last_checkpoint_seconds
    if needed is not None and needed > left and recorder.checkpoint_here is None:
        return (
            f"{stop.reason}; no checkpoint: the last one took {needed:.1f} s, and {max(0.0, left):.1f} s of "
            f"limits.grace_seconds = {limits.grace_seconds:g} were left"
        )
    is_milestone = training.calendar.checkpoint_kind(recorder.step) == "milestone"
    kind: CheckpointKind = "milestone" if is_milestone else "signal"
    save(training, "final" if recorder.step == recorder.target_step else kind)
    return stop.reason


def export(training: Training) -> None:
    """Write the weights alone: no checkpoint, nothing can be resumed from it."""
    recorder = training.recorder
    with recorder.export() as folder:
        write_weights(folder, training.state, metadata=recorder.tensor_metadata())
    training.report.exported(recorder.step)


def save(training: Training, kind: CheckpointKind) -> CompleteCheckpoint | None:
    """Commit a checkpoint unless this step has one already; None where the policy keeps no weights."""
    recorder = training.recorder
    if training.config.checkpoint.policy == "none":
        return None
    if recorder.checkpoint_here is None:
        with recorder.checkpoint(kind) as folder:
            write_tensors(folder, training.state, metadata=recorder.tensor_metadata())
        training.report.saved(kind, recorder.step)
    return recorder.checkpoint_here


def measure(
    training: Training, *, batches: int | None, of: CompleteCheckpoint | None = None, keep: bool = False
) -> bool:
    """Measure the held-out loss on the first `batches` batches, or on everything, and record it.

    False, and nothing is recorded, if somebody asks to stop meanwhile: the next session measures it. A final state of
    which no weights are kept is measured to the end, since no session could come back to it.
    """
    recorder, stop = training.recorder, training.stop
    can_wait = of is not None or not keep
    try:
        with recorder.phase("evaluate"):
            result = evaluate(
                training.state.model,
                training.dataset.split(VALIDATION_SPLIT),
                training.config,
                data_sha256=training.dataset.metadata_sha256,
                batches=batches,
                is_stopped=lambda: can_wait and stop.made_at is not None,
            )
    except BrokenOffError:
        return False
    recorder.evaluation(result, of=of, keep=keep)
    training.report.measured(result, step=recorder.step)
    return True


def measure_final(training: Training, checkpoint: CompleteCheckpoint | None) -> bool:
    """Measure the complete held-out split for the final state, unless an earlier session did; False if broken off."""
    if not training.config.evaluation.enabled:
        return True
    if checkpoint is not None and training.recorder.has_final_evaluation(checkpoint, split=VALIDATION_SPLIT):
        return True
    return measure(training, batches=None, of=checkpoint, keep=True)
