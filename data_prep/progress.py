"""How a preparation tells what it is doing; whoever runs it decides whether and how that is shown."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Progress", "Quiet"]


class Progress(Protocol):
    """Told of one stage after the other."""

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Begin a stage of `total` units; null: nobody knows how many."""

    def advance(self, amount: int) -> None:
        """Say that `amount` more units of the stage are done; may be called from several threads."""


class Quiet:
    """Tells nobody."""

    def stage(self, name: str, *, total: int | None = None, unit: str = "") -> None:
        """Begin a stage."""

    def advance(self, amount: int) -> None:
        """Say that more is done."""
