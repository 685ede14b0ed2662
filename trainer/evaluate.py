"""The loss on held-out text: from the split's start, on a fixed subset or on every target position of it.

Measuring leaves no trace in the training: it has its own cursor, draws no random number, and puts the model's mode
back. The digests of the generators before and after go into the record, so that this can be checked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from ledger.checkpoints import CompleteCheckpoint
from ledger.dataset.manifest import Split
from ledger.dataset.reader import evaluation_batches
from ledger.recorder import EvaluationResult
from ledger.records.documents import Evaluation
from ledger.records.layout import EVALUATIONS
from ledger.storage.documents import read_document
from trainer.config import TrainerConfig
from trainer.data import token_tensor
from trainer.precision import autocast
from trainer.randomness import randomness_sha256

__all__ = ["VALIDATION", "evaluate", "has_evaluation"]

VALIDATION: Final = "validation"
"""Name of the held-out split."""


def evaluate(
    model: nn.Module, split: Split, config: TrainerConfig, *, data_sha256: str, batches: int | None = None
) -> EvaluationResult:
    """Return the token-weighted mean cross-entropy in nats over the split's first `batches` batches, or over all of it.

    Args:
        model: maps token ids to logits.
        split: the held-out text.
        config: batch size, sequence length, precision and device.
        data_sha256: identity of the dataset that holds the split.
        batches: size of the subset; None measures every target position, the last partial batch included.
    """
    rng_before = randomness_sha256()
    loss, tokens, count = _measure(model, split, config, batches=batches)
    return EvaluationResult(
        split=split.name,
        data_sha256=data_sha256,
        loss=loss,
        tokens=tokens,
        batches=count,
        complete=tokens == split.tokens - 1,
        metrics={"perplexity": _perplexity(loss)},
        rng_before=rng_before,
        rng_after=randomness_sha256(),
    )


def has_evaluation(run_dir: Path, checkpoint: CompleteCheckpoint) -> bool:
    """Tell whether the run holds a complete measurement of this checkpoint already."""
    kept = [read_document(path, Evaluation) for path in sorted((run_dir / EVALUATIONS).glob("*.json"))]
    return any(
        found.complete and found.split == VALIDATION and found.manifest_sha256 == checkpoint.manifest_sha256
        for found in kept
    )


@torch.no_grad()
def _measure(
    model: nn.Module, split: Split, config: TrainerConfig, *, batches: int | None
) -> tuple[float, int, int]:
    device = torch.device(config.machine.device)
    reader = evaluation_batches(
        split, micro_batch=config.evaluation.micro_batch, sequence=config.batch.sequence, batches=batches
    )
    total, tokens, count = 0.0, 0, 0
    with _evaluation_mode(model):
        for batch in reader:
            with autocast(config.precision, device):
                logits: Tensor = model(token_tensor(batch.inputs, device))
            targets = token_tensor(batch.targets, device)
            losses = functional.cross_entropy(
                logits.float().flatten(0, 1), targets.flatten(), reduction="none"
            )
            total += losses.double().sum().item()
            tokens += batch.tokens
            count += 1
    return total / tokens, tokens, count


@contextmanager
def _evaluation_mode(model: nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


def _perplexity(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf
