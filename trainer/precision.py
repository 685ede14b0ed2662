"""Number formats of the forward and backward pass, and the refusal of numbers that are not finite.

Parameters, gradients and optimizer state are float32; bf16 and fp16 are autocast around the forward pass. With fp16
the loss is scaled before the backward pass and the gradients are unscaled after it; the scale's law is
`ledger.laws.scaler`. A non-finite loss or gradient norm is found before the optimizer moves: the attempt is skipped,
its reason recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn

from ledger.laws.scaler import LossScale, ScalerLaw, parse_scaler_law
from ledger.records.fields import Json

if TYPE_CHECKING:
    from ledger.records.events import SkipReason
    from trainer.config import PrecisionConfig

__all__ = ["LossScaler", "autocast", "clip_gradients", "gradient_norm", "reason_to_skip"]

HALF: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(config: PrecisionConfig, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which a forward pass computes."""
    half = HALF.get(config.name)
    return nullcontext() if half is None else torch.autocast(device.type, dtype=half)


class LossScaler:
    """The loss scale of a run: 1 for ever where the number format needs none."""

    def __init__(self, config: PrecisionConfig) -> None:
        self._law: ScalerLaw | None = parse_scaler_law(config.model_dump(mode="json"))
        self._state: LossScale | None = None if self._law is None else self._law.initial

    @property
    def scale(self) -> float:
        """What the loss is multiplied by before the backward pass."""
        return 1.0 if self._state is None else self._state.scale

    @property
    def loss_scale(self) -> float | None:
        """The scale as the log shows it; None where there is none."""
        return None if self._state is None else self._state.scale

    @property
    def growth_tracker(self) -> int | None:
        """Successful updates since the scale last moved; None where there is none."""
        return None if self._state is None else self._state.growth_tracker

    @torch.no_grad()
    def unscale(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide every gradient by the scale."""
        if self._state is None:
            return
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(1.0 / self._state.scale)

    def updated(self) -> None:
        """Move on after a successful update."""
        if self._law is not None and self._state is not None:
            self._state = self._law.after_updates(self._state)

    def skipped(self, reason: SkipReason) -> tuple[float, float] | None:
        """Move on after a skipped update; return the scale before and after, None where there is none."""
        if self._law is None or self._state is None:
            return None
        before = self._state.scale
        if reason == "overflow":
            self._state = self._law.after_overflow(self._state)
        return before, self._state.scale

    def capture(self) -> dict[str, Json] | None:
        """Return the state as a checkpoint stores it; None where there is none."""
        if self._state is None:
            return None
        return {"scale": self._state.scale, "growth_tracker": self._state.growth_tracker}

    def restore(self, state: Json) -> None:
        """Take the state from a checkpoint."""
        if self._state is not None:
            self._state = LossScale(scale=float(state["scale"]), growth_tracker=int(state["growth_tracker"]))


def reason_to_skip(*, loss: float, grad_norm: float, is_scaled: bool = False) -> SkipReason | None:
    """Return why an attempt must not be applied, or None if nothing speaks against it.

    Where the loss is scaled, gradients that are not finite although the loss is are an overflow.
    """
    if not math.isfinite(loss):
        return "nonfinite_loss"
    if not math.isfinite(grad_norm):
        return "overflow" if is_scaled else "nonfinite_grad"
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
