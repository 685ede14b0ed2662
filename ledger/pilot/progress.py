"""What a pilot says of itself while it works."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

__all__ = ["Moment", "Phase", "Report", "silent"]

Phase: TypeAlias = Literal[
    "resolving", "waiting", "preparing", "loading", "training", "evaluating", "hashing", "reconciling"
]
"""What a stage is doing."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What goes on at this moment."""

    stage: str
    phase: Phase
    run_dir: Path | None = None
    """The run that is being written, if one is."""
    note: str = ""
    """What there is to add, such as for whom it waits."""


Report: TypeAlias = Callable[[Moment], None]
"""Told again and again what goes on."""


def silent(_moment: Moment) -> None:
    """Say nothing."""
