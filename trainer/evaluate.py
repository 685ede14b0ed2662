"""The loss on held-out text: from the split's start, on a fixed subset or on every target position of it.

Measuring leaves no trace in the training: it has its own cursor, draws no random number, and puts the model's mode
back. The digests of the generators before and after go into the record, so that this can be checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from ledger.dataset.evaluation import evaluation_batches
from ledger.dataset.manifest import Split
from ledger.dataset.packing import DocumentLayout
from ledger.recorder import EvaluationResult
from trainer.config import TrainerConfig
from trainer.data import document_tensor, token_tensor
from trainer.precision import autocast
from trainer.randomness import randomness_sha256

__all__ = ["BrokenOffError", "evaluate"]


class BrokenOffError(Exception):
    """Somebody asked to stop before everything was measured; what was measured till then is dropped."""


def evaluate(
    model: nn.Module,
    split: Split,
    config: TrainerConfig,
    *,
    data_sha256: str,
    batches: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> EvaluationResult:
    """Return the token-weighted mean cross-entropy in nats over the split's first `batches` batches, or over all of it.

    Args:
        model: maps token ids, and the number of each one's document or None, to logits.
        split: the held-out text.
        config: batch size, sequence length, precision and device.
        data_sha256: identity of the dataset that holds the split.
        batches: size of the subset; None measures every target position, the last partial batch included.
        is_stopped: asked before each batch.

    Raises:
        BrokenOffError: `is_stopped` said so.

    Where the packing tells documents apart, attention stops at their ends as in training, and the metric
    `loss_within_documents` leaves out the targets that training leaves out: the first token of each document.
    """
    rng_before = randomness_sha256()
    measured = _measure(model, split, config, batches=batches, is_stopped=is_stopped)
    return EvaluationResult(
        split=split.name,
        data_sha256=data_sha256,
        loss=measured.loss,
        tokens=measured.tokens,
        batches=measured.batches,
        complete=measured.tokens == split.tokens - 1,
        metrics=measured.metrics() | _per_byte(split, loss=measured.loss),
        rng_before=rng_before,
        rng_after=randomness_sha256(),
    )


def _per_byte(split: Split, *, loss: float) -> dict[str, float]:
    """Return the loss in bits for each byte of text, and the bytes of a token that it was reckoned with.

    A token's bytes are those of the whole split on average (bytes of text / tokens, both from the dataset's manifest):
    for a complete measurement that is the split's loss over its bytes, for a subset an estimate.
    """
    text_bytes, tokens = split.inventory.bytes, split.tokens
    if not text_bytes or not tokens:
        return {}
    bytes_per_token = text_bytes / tokens
    return {"bits_per_byte": loss / (math.log(2) * bytes_per_token), "bytes_per_token": bytes_per_token}


@dataclass
class _Measured:
    """Sums over the batches measured so far."""

    nats: float = 0.0
    tokens: int = 0
    batches: int = 0
    nats_within: float = 0.0
    """Of the targets that lie in one document with their input."""
    tokens_within: int = 0

    @property
    def loss(self) -> float:
        """The mean over all targets."""
        return self.nats / self.tokens

    def add(self, losses: Tensor, layout: DocumentLayout | None) -> None:
        """Add the losses of a batch, one a target, in order."""
        self.nats += losses.double().sum().item()
        self.tokens += losses.numel()
        self.batches += 1
        if layout is not None:
            within = losses[torch.from_numpy(layout.counted).flatten().to(losses.device)]
            self.nats_within += within.double().sum().item()
            self.tokens_within += within.numel()

    def metrics(self) -> dict[str, float]:
        """Return what is reported beside the loss."""
        metrics = {"perplexity": _perplexity(self.loss)}
        if self.tokens_within:
            metrics["loss_within_documents"] = self.nats_within / self.tokens_within
        return metrics


@torch.no_grad()
def _measure(
    model: nn.Module,
    split: Split,
    config: TrainerConfig,
    *,
    batches: int | None,
    is_stopped: Callable[[], bool],
) -> _Measured:
    device = torch.device(config.machine.device)
    reader = evaluation_batches(
        split,
        micro_batch=config.evaluation.micro_batch,
        sequence=config.batch.sequence,
        batches=batches,
        packing=config.data.packing,
    )
    measured = _Measured()
    with _evaluation_mode(model):
        for batch in reader:
            if is_stopped():
                raise BrokenOffError
            with autocast(config.precision, device):
                logits: Tensor = model(
                    token_tensor(batch.inputs, device), document_tensor(batch.layout, device)
                )
            targets = token_tensor(batch.targets, device)
            losses = functional.cross_entropy(
                logits.float().flatten(0, 1), targets.flatten(), reduction="none"
            )
            measured.add(losses, batch.layout)
    return measured


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _perplexity(loss: float) -> float:
    return math.inf if loss >= 700 else math.exp(loss)
