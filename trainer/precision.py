"""Number formats of the forward and backward pass, and the refusal of numbers that are none.

Parameters, gradients and optimizer state are float32; bf16 is autocast around the forward pass. A non-finite loss
or gradient norm is found before the optimizer moves: the attempt is skipped, its reason recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from ledger.records.events import SkipReason
    from trainer.config import PrecisionConfig

__all__ = ["autocast", "clip_gradients", "gradient_norm", "reason_to_skip"]


def autocast(config: PrecisionConfig, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which a forward pass computes."""
    if config.name == "fp32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def reason_to_skip(*, loss: float, grad_norm: float) -> SkipReason | None:
    """Return why an attempt must not be applied, or None if nothing speaks against it."""
    if not math.isfinite(loss):
        return "nonfinite_loss"
    if not math.isfinite(grad_norm):
        return "nonfinite_grad"
    return None


@torch.no_grad()
def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the global 2-norm of all gradients, summed in float64 (float32 is off by 1e-4 at millions of elements)."""
    norms = [
        torch.linalg.vector_norm(parameter.grad, dtype=torch.float64)
        for parameter in parameters
        if parameter.grad is not None
    ]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros((), dtype=torch.float64)


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], *, norm: float, limit: float | None) -> None:
    """Scale every gradient by `limit / norm` if the norm exceeds the limit (Pascanu et al. 2013, arXiv:1211.5063)."""
    if limit is None or norm <= limit:
        return
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.mul_(limit / norm)
