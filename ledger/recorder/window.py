"""What happened since the last train event: sums and lists that become its fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ledger.records.events import Window
from ledger.records.fields import Measurement, as_measurement

__all__ = ["OpenWindow", "Update"]


@dataclass(frozen=True, kw_only=True)
class Update:
    """One applied update as the loop measured it.

    `loss` is the mean over the window's loss tokens in nats, `grad_norm` unscaled and before clipping, `lr` the
    rate of each optimizer group.
    """

    loss: float
    grad_norm: float
    lr: Mapping[str, float]
    loss_tokens: int


@dataclass
class OpenWindow:
    """The work since the last train event or session start."""

    attempts: int = 0
    skipped: int = 0
    microbatches: int = 0
    tokens: int = 0
    loss_tokens: int = 0
    batches: list[str] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)

    def add_microbatch(self, *, tokens: int, loss_tokens: int, digest: bytes) -> None:
        """Count one processed microbatch."""
        self.microbatches += 1
        self.tokens += tokens
        self.loss_tokens += loss_tokens
        self.batches.append(digest.hex()[:16])

    def add_update(self, update: Update) -> None:
        """Count one attempt that succeeded."""
        self.attempts += 1
        self.updates.append(update)

    def add_skip(self) -> None:
        """Count one attempt that did not."""
        self.attempts += 1
        self.skipped += 1

    def totals(self, *, seconds: float, data_seconds: float) -> Window:
        """Return the window as the train event states it."""
        return Window(
            updates=len(self.updates),
            attempts=self.attempts,
            skipped=self.skipped,
            microbatches=self.microbatches,
            tokens=self.tokens,
            loss_tokens=self.loss_tokens,
            seconds=seconds,
            data_seconds=data_seconds,
        )

    def measurements(self, *, clip_norm: float | None) -> dict[str, object]:
        """Return the fields that are of applied updates only: all null when there was none."""
        if not self.updates:
            names = ("loss", "loss_last", "grad_norm", "grad_norm_max", "lr")
            return dict.fromkeys(names) | {"clipped": 0}
        last = self.updates[-1]
        return {
            "loss": as_measurement(self._mean_loss()),
            "loss_last": as_measurement(last.loss),
            "grad_norm": as_measurement(last.grad_norm),
            "grad_norm_max": self._greatest_norm(),
            "lr": {name: as_measurement(rate) for name, rate in last.lr.items()},
            "clipped": 0
            if clip_norm is None
            else sum(update.grad_norm > clip_norm for update in self.updates),
        }

    def _mean_loss(self) -> float:
        weight = sum(update.loss_tokens for update in self.updates)
        if (
            not weight or len(self.updates) == 1
        ):  # x * w / w need not be x, and evidence is compared bit for bit
            return self.updates[-1].loss
        return sum(update.loss * update.loss_tokens for update in self.updates) / weight

    def _greatest_norm(self) -> Measurement:
        norms = [update.grad_norm for update in self.updates]
        broken = [norm for norm in norms if math.isnan(norm)]  # `max` may miss a NaN
        return as_measurement(broken[0] if broken else max(norms))
