"""How a case is stated: an honest run, what to do to it, and exactly what must then be found.

Expected are the rule itself and its companions, in addition to what that honest run lacks anyway. A companion is a
rule whose very wording the same change contradicts; each case that has one says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ledger.audit.editing import Events, edit

CASES: list[Case] = []
OTHER = "ab" * 32
FIRST_CHECKPOINT = "checkpoints/step-00000003-s01"
Breaker = Callable[[Path], object]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A broken run and its findings."""

    rule: str
    name: str
    run: str
    do: Breaker
    severity: str = "error"
    companions: set[str] = field(default_factory=set)
    rehash: bool = False
    control: str | None = None


def case(
    rule: str,
    run: str,
    *,
    severity: str = "error",
    companions: str = "",
    rehash: bool = False,
    control: str | None = None,
) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    """Register a function that breaks a run."""

    def register(do: Breaker) -> Breaker:
        CASES.append(
            Case(
                rule=rule,
                name=do.__name__,
                run=run,
                do=do,
                severity=severity,
                companions=set(companions.split()),
                rehash=rehash,
                control=control,
            )
        )
        return do

    return register


def edited(
    rule: str, run: str, *, severity: str = "error", companions: str = "", control: str | None = None
) -> Callable[[Callable[[Events], object]], None]:
    """Register a function that changes the events of a run; everything else is made to agree."""

    def register(change: Callable[[Events], object]) -> None:
        def do(run_dir: Path) -> None:
            edit(run_dir, lambda events: (change(events), None)[1])

        do.__name__ = change.__name__
        case(rule, run, severity=severity, companions=companions, control=control)(do)

    return register


def later(events: Events, event: dict[str, Any]) -> Events:
    """Return an event and all behind it in its session."""
    return [
        other for other in events if other["session"] == event["session"] and other["seq"] >= event["seq"]
    ]


def note_behind(event: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a note that stands behind an event."""
    names = [
        "session",
        "time",
        "elapsed",
        "step",
        "attempts",
        "skipped",
        "microbatches",
        "tokens_seen",
        "loss_tokens",
    ]
    return (
        {"event": "note", "seq": event["seq"] + 1}
        | {name: event[name] for name in names}
        | {"text": ""}
        | changes
    )
