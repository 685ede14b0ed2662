"""What a pilot amounts to: go or no-go, what failed and why, what is missing, and what no pilot shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from ledger.records.locks import Budget
from ledger.records.pilot import Gate
from ledger.report.budget import budget_lines
from ledger.report.lines import Line, blank, heading

__all__ = ["NOT_SHOWN", "WORDS", "Miss", "decision_lines", "gate_standing", "gate_words", "misses_of"]

WORDS: Final[dict[str, str]] = {
    "passed": "GO: everything that was asked is kept",
    "failed": "NO-GO: something that was asked is not kept",
    "incomplete": "NOT YET: something that a decision needs is not known",
}
"""Verdict to the decision that it stands for."""

NOT_SHOWN: Final = (
    "That a longer run behaves: instabilities come late, too. A quiet pilot guarantees nothing.",
    "That the bounds are right: no single threshold tells a good recipe from a bad one. Look at the curves.",
    "How good the model will be: an early validation loss is no final result.",
    "That the machine stays as it is: its speed, its disk and its neighbours over days.",
    "That the data is good: only that it was read as the records say.",
)
"""What a person who decides must know besides."""


@dataclass(frozen=True, kw_only=True)
class Miss:
    """A gate that misses its bound, and what to think of."""

    stage: str
    gate: Gate
    advice: str

    def __str__(self) -> str:
        return f"{self.stage}: {gate_words(self.gate)} {_measured(self.gate)}, asked {self.gate.asked}"


def misses_of(stage: str, gates: Sequence[Gate], advice: dict[str, str]) -> Iterator[Miss]:
    """Yield the gates of a stage that miss their bounds; `advice` by the metric's name."""
    for gate in gates:
        if not gate.passed:
            yield Miss(stage=stage, gate=gate, advice=advice.get(gate.metric, ""))


def decision_lines(verdict: str, budget: Budget | None, *, advice: str) -> Iterator[Line]:
    """Yield the end of a pilot: the decision, the long run's budget, what none of it shows, and what to do next."""
    if budget is not None:
        yield blank()
        yield heading("budget of the long run, if it behaves as the pilot did")
        yield from budget_lines(budget)
    yield blank()
    yield heading("what this does not show")
    yield from (Line(f"  {text}") for text in NOT_SHOWN)
    yield blank()
    yield Line(WORDS[verdict], "bold green" if verdict == "passed" else "bold red")
    yield Line(advice)


def gate_words(gate: Gate) -> str:
    """Return what a gate measures, in words."""
    window = f" ({gate.window.replace('_', ' ')})" if gate.window else ""
    return gate.metric.replace("_", " ") + window


def gate_standing(gate: Gate) -> Literal["passed", "MISSED", "not gated"]:
    """Return whether a gate is kept, in a word."""
    if not gate.gated:
        return "not gated"
    return "passed" if gate.passed else "MISSED"


def _measured(gate: Gate) -> str:
    if gate.measured is None:
        return "was not measured"
    return f"is {gate.measured:.6g}" if isinstance(gate.measured, int | float) else f"is {gate.measured}"
