"""The training loop: windows of microbatches become attempts, attempts become steps, steps become the run.

It computes and says what it did; counting, logging and committing are the recorder's work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ledger.checkpoints import CompleteCheckpoint
from ledger.dataset.manifest import Dataset
from ledger.errors import LedgerError
from ledger.recorder import RunRecorder
from ledger.records.events import CheckpointKind, SessionStatus, SkipReason
from trainer.checkpoint import write_tensors
from trainer.config import TrainerConfig
from trainer.data import IGNORED, Batch, TrainingData
from trainer.environment import peak_memory
from trainer.evaluate import VALIDATION, evaluate, has_evaluation
from trainer.precision import autocast, clip_gradients, gradient_norm, reason_to_skip
from trainer.profiling import Profiling
from trainer.report import Report
from trainer.signals import StopRequest
from trainer.state import TrainingState

__all__ = ["Training", "TrainingFailedError", "fit"]


class TrainingFailedError(LedgerError):
    """Training cannot go on: too many attempts in a row gave numbers that are none."""


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


def fit(training: Training) -> SessionStatus:
    """Train until the target is reached or somebody asks to stop; return how the session ended."""
    recorder, stop = training.recorder, training.stop
    while recorder.step < recorder.target_step and not stop.is_made:
        switch_profiler(training)
        loss = process_window(training)
        if attempt_update(training, loss):
            finish_step(training)
    switch_profiler(training)
    record_verified(training)
    if recorder.step < recorder.target_step:
        save(training, "signal")
        return recorder.end("interrupted", reason=stop.reason)
    measure_final(training, save(training, "final"))
    return recorder.end()


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
    """Apply the window's gradients and tell whether that happened: numbers that are none never reach the optimizer."""
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
    """Raise `TrainingFailedError` when as many attempts in a row were skipped as the recipe allows."""
    skips, limit = training.recorder.consecutive_skips, training.config.limits.consecutive_skips
    if skips >= limit:
        raise TrainingFailedError(
            f"{skips} attempts in a row were skipped, the last one for {reason}",
            place=f"after step {training.recorder.step}",
            expected=f"fewer than limits.consecutive_skips = {limit}",
            advice="lower the learning rate or lengthen the warm-up, and look at the overflow events of the log",
        )


def finish_step(training: Training) -> None:
    """Do what is due at this step: first the evaluation of the subset, then the checkpoint."""
    step, config = training.recorder.step, training.config
    if config.evaluation.enabled and is_due(step, config.evaluation.interval):
        measure(training, batches=config.evaluation.batches)
    at_target = step == training.recorder.target_step
    if config.checkpoint.policy == "interval" and is_due(step, config.checkpoint.interval) and not at_target:
        save(training, "signal" if training.stop.is_made else "interval")


def is_due(step: int, interval: int | None) -> bool:
    """Tell whether something that happens every `interval` updates happens at this one."""
    return interval is not None and step % interval == 0


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
) -> None:
    """Measure the held-out loss on the first `batches` batches, or on everything, and record it."""
    recorder = training.recorder
    with recorder.phase("evaluate"):
        result = evaluate(
            training.state.model,
            training.dataset.split(VALIDATION),
            training.config,
            data_sha256=training.dataset.metadata_sha256,
            batches=batches,
        )
    recorder.evaluation(result, of=of, keep=keep)
    training.report.measured(result, step=recorder.step)


def measure_final(training: Training, checkpoint: CompleteCheckpoint | None) -> None:
    """Measure the complete held-out split for the final state, unless an earlier session did."""
    if not training.config.evaluation.enabled:
        return
    if checkpoint is not None and has_evaluation(training.recorder.run_dir, checkpoint):
        return
    measure(training, batches=None, of=checkpoint, keep=True)
