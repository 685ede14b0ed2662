"""How a case is stated: an honest run, what to do to it, and exactly what must then be found.

Expected is one finding of the rule itself, or as many as `times` says, and its companions, in addition to what that
honest run lacks anyway (less what `instead_of` names). A companion is a rule whose very wording the same change
contradicts; each case that has one says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    times: int = 1
    companions: str = ""
    """Further findings, apart by spaces: `LG101`, with a severity other than error `LG101:missing`."""
    instead_of: str = ""
    """What the honest run lacks and this one does not."""
    rehash: bool = False
    control: str | None = None
    says: str = ""
    """Words that the rule's first finding must hold, where the cause is not plain from the rule alone."""

    def expected(self, usual: Mapping[tuple[str, str], int]) -> Counter[tuple[str, str]]:
        """Return how often each rule must find something, by severity; `usual` is what the honest run lacks."""
        found = Counter(dict(usual))
        found -= Counter(map(_parsed, self.instead_of.split()))
        found[self.rule, self.severity] += self.times
        return found + Counter(map(_parsed, self.companions.split()))


def _parsed(finding: str) -> tuple[str, str]:
    rule, _, severity = finding.partition(":")
    return rule, severity or "error"


def case(rule: str, run: str, **options: Any) -> Callable[[Breaker], Breaker]:
    """Register a function that breaks a run; the options are those of a `Case`."""

    def register(do: Breaker) -> Breaker:
        name = getattr(do, "__name__", "")
        assert name not in {known.name for known in CASES}, f"two cases are called {name}"
        CASES.append(Case(rule=rule, name=name, run=run, do=do, **options))
        return do

    return register


def edited(rule: str, run: str, **options: Any) -> Callable[[Callable[[Events], object]], None]:
    """Register a function that changes the events of a run; everything else is made to agree."""

    def register(change: Callable[[Events], object]) -> None:
        def do(run_dir: Path) -> None:
            edit(run_dir, lambda events: (change(events), None)[1])

        do.__name__ = change.__name__
        case(rule, run, **options)(do)

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
