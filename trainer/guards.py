"""Guards: an update whose loss or gradient norm is out of line with those before it is not applied.

The window holds the numbers of applied updates alone and is part of the training state, so a resumed run refuses
exactly what an uninterrupted one would.
"""

from __future__ import annotations

from collections import deque
from statistics import median

from ledger.records.fields import Json
from trainer.config import GuardConfig, GuardsConfig

__all__ = ["Guards"]


class Guards:
    """The guards that a recipe asks for, by the name of what they watch."""

    def __init__(self, config: GuardsConfig) -> None:
        wanted: dict[str, GuardConfig | None] = {"loss": config.loss, "grad_norm": config.grad_norm}
        self._guards = {name: _Guard(guard) for name, guard in wanted.items() if guard is not None}

    def refuse(self, **measured: float) -> bool:
        """Tell whether a guard speaks against an update with these numbers (`loss=`, `grad_norm=`)."""
        return any(guard.refuses(measured[name]) for name, guard in self._guards.items())

    def updated(self, **measured: float) -> None:
        """Take the numbers of an applied update into the windows."""
        for name, guard in self._guards.items():
            guard.window.append(measured[name])

    def capture(self) -> dict[str, Json] | None:
        """Return the windows as a checkpoint stores them; None where there is no guard."""
        return {name: list(guard.window) for name, guard in self._guards.items()} or None

    def restore(self, state: Json) -> None:
        """Take the windows from a checkpoint."""
        for name, guard in self._guards.items():
            guard.window.clear()
            guard.window.extend(state[name])


class _Guard:
    """One number of applied updates, and how far the next may lie above their median."""

    def __init__(self, config: GuardConfig) -> None:
        self._factor = config.factor
        self.window: deque[float] = deque(maxlen=config.window)

    def refuses(self, number: float) -> bool:
        """Tell whether a number is out of line; nothing is before the window is full."""
        return len(self.window) == self.window.maxlen and number > self._factor * median(self.window)
