"""What a person sees while training: the arithmetic at the start, a bar on a terminal, plain lines elsewhere.

Everything goes to stderr. The records are elsewhere; nothing is read back from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ledger.recorder import EvaluationResult
from ledger.records.documents import Evaluation
from ledger.records.parts import Counters
from trainer.config import TrainerConfig

__all__ = ["Report", "arithmetic", "measured_lines"]


def arithmetic(
    config: TrainerConfig, *, start_step: int, tokens_per_epoch: Mapping[str, int], parameters: int
) -> str:
    """Return the nominal arithmetic of a run: plans from the recipe, no measurements.

    Args:
        config: the effective recipe.
        start_step: successful updates that are done already.
        tokens_per_epoch: usable tokens of each training source.
        parameters: trainable parameters of the model.
    """
    batch, per_update = config.batch, config.tokens_per_update
    per_microbatch = batch.tokens_per_microbatch
    updates = config.target_step - start_step
    planned = updates * per_update
    return "\n".join(
        (
            f"tokens per microbatch {per_microbatch:,} = {batch.micro_batch} sequences x {batch.sequence}",
            f"tokens per update {per_update:,} = accumulation {batch.accumulation} x {per_microbatch:,}",
            f"planned {planned:,} tokens = {updates:,} updates from step {start_step:,} to {config.target_step:,}",
            *_epochs(config, planned=planned, tokens_per_epoch=tokens_per_epoch),
            f"{parameters:,} trainable parameters in {config.precision.name} on {config.machine.device}",
            _repeatability(config),
        )
    )


def _epochs(config: TrainerConfig, *, planned: int, tokens_per_epoch: Mapping[str, int]) -> Iterator[str]:
    weights = {name: source.weight for name, source in (config.data.sources or {}).items()}
    for name, tokens in tokens_per_epoch.items():
        share = weights[name] / sum(weights.values()) if weights else 1.0
        what = f"an epoch of {name} (about {share:.1%} of the microbatches)" if weights else "an epoch"
        yield f"{what} is {tokens:,} tokens, so that is {share * planned / tokens:.2f} epochs"


def _repeatability(config: TrainerConfig) -> str:
    """Return what the run promises of a second one of the same recipe and data."""
    if not config.determinism.deterministic:
        return "not deterministic: a second run need not give the same bits"
    threads = f"{config.machine.threads} thread{'s' * (config.machine.threads > 1)}"
    return (
        f"deterministic: the same bits again on this kind of machine, with these libraries and {threads}; an operation "
        "that cannot promise that ends the run"
    )


class Report:
    """Shows how far the training is."""

    def __init__(self, console: Console, *, interval: int) -> None:
        """Write to `console`; where that is no terminal, a line every `interval` updates."""
        self._console = console
        self._interval = interval
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    @contextmanager
    def showing(self, name: str, *, step: int, target: int) -> Iterator[None]:
        """Show the bar inside the block."""
        with self._progress:
            self._task = self._progress.add_task(escape(name), total=target, completed=step, status="")
            yield

    def say(self, text: str) -> None:
        """Write text."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def step(self, counters: Counters, *, loss: float, grad_norm: float, rates: Mapping[str, float]) -> None:
        """Show an applied update."""
        status = f"loss {loss:.4f}  norm {grad_norm:.3f}  lr {max(rates.values()):.3g}"
        if self._task is not None:
            self._progress.update(self._task, completed=counters.step, status=status)
        if not self._console.is_terminal and counters.step % self._interval == 0:
            self.say(f"step {counters.step:,}  {status}  tokens {counters.tokens_seen:,}")

    def measured(self, result: EvaluationResult, *, step: int) -> None:
        """Show a measurement on held-out text."""
        extent = "complete" if result.complete else "a subset"
        self.say(
            f"step {step:,}  {result.split} loss {result.loss:.4f} on {result.tokens:,} tokens ({extent})"
        )

    def saved(self, kind: str, step: int) -> None:
        """Show that a checkpoint was committed."""
        self.say(f"step {step:,}  {kind} checkpoint saved")

    def exported(self, step: int) -> None:
        """Show that weights were written."""
        self.say(f"step {step:,}  weights exported")

    def pruned(self, path: str) -> None:
        """Show that retention removed a checkpoint."""
        self.say(f"{path} removed by retention")


def measured_lines(found: Evaluation, checkpoint: Path) -> Iterator[str]:
    """Yield the lines that tell of a checkpoint's evaluation."""
    extent = "complete" if found.complete else "incomplete: a subset"
    yield f"{checkpoint}: step {found.step:,}"
    yield f"{found.split} loss {found.loss} nats per token over {found.tokens:,} tokens ({extent})"
    for name, value in sorted(found.metrics.items()):
        yield f"{name} {value}"
