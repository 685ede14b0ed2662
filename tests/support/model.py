"""A tiny model of a run's history, written from the records reference alone.

It knows lines, sessions and checkpoints and says in the plainest way (sets of things) what is on the current branch,
what was superseded and what was spent. It shares no code with the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple


class Totals(NamedTuple):
    """The six running totals."""

    step: int = 0
    attempts: int = 0
    skipped: int = 0
    microbatches: int = 0
    tokens_seen: int = 0
    loss_tokens: int = 0


class Line(NamedTuple):
    """One line of the log: its kind and its totals (of a checkpoint: those it captured, which are the same)."""

    kind: str
    totals: Totals


@dataclass(frozen=True)
class ModelCheckpoint:
    """A complete checkpoint on disk, with or without an event."""

    path: str
    session: int
    totals: Totals


@dataclass
class ModelSession:
    """One session: where it started, what it logged, under which settings."""

    number: int
    parent: ModelCheckpoint | None
    first: Totals
    interval: int
    target: int
    lines: list[Line] = field(default_factory=list)

    @property
    def last(self) -> Totals:
        """The totals of its last line."""
        return self.lines[-1].totals if self.lines else self.first


@dataclass
class Model:
    """What happened to a run so far, as its log tells it."""

    sessions: list[ModelSession] = field(default_factory=list)
    checkpoints: dict[str, ModelCheckpoint] = field(default_factory=dict)
    named_tails: set[str] = field(default_factory=set)

    def segments(self, parent: ModelCheckpoint | None) -> Iterator[tuple[ModelSession, Totals]]:
        """Yield (session, where it is left) for every ancestor of something that starts from `parent`."""
        while parent is not None:
            session = self.sessions[parent.session - 1]
            yield session, parent.totals
            parent = session.parent

    def branch(self) -> list[tuple[ModelSession, Totals]]:
        """Return (session, where it is left) for every session on the current branch."""
        if not self.sessions:
            return []
        last = self.sessions[-1]
        return [(last, last.last), *self.segments(last.parent)]

    def superseded_by(self, parent: ModelCheckpoint | None) -> dict[str, int]:
        """Return what a new session with this parent takes off the current branch."""
        before, after = self.branch(), list(self.segments(parent))
        lost = {
            "updates": "step",
            "attempts": "attempts",
            "microbatches": "microbatches",
            "tokens": "tokens_seen",
        }
        counted = {word: len(_work(before, total) - _work(after, total)) for word, total in lost.items()}
        return counted | {"events": len(_lines(before) - _lines(after))}

    def seen(self) -> Totals:
        """Return the totals that the current branch saw."""
        return self.sessions[-1].last if self.sessions else Totals()

    def spent(self) -> Totals:
        """Return the work of all sessions, as far as it was logged."""
        sums = [
            sum(session.last[index] - session.first[index] for session in self.sessions) for index in range(6)
        ]
        return Totals(*sums)

    def on_branch(self) -> list[ModelCheckpoint]:
        """Return the complete checkpoints on the current branch."""
        ends = {session.number: end.microbatches for session, end in self.branch()}
        return [
            found
            for found in self.checkpoints.values()
            if found.session in ends and found.totals.microbatches <= ends[found.session]
        ]

    def latest(self) -> ModelCheckpoint | None:
        """Return the complete checkpoint of greatest microbatches, then session, on the current branch."""
        ordered = sorted(self.on_branch(), key=lambda found: (found.totals.microbatches, found.session))
        return ordered[-1] if ordered else None


def _work(segments: list[tuple[ModelSession, Totals]], total: str) -> set[tuple[int, int]]:
    """Return every single unit of one total that the segments hold."""
    return {
        (session.number, unit)
        for session, end in segments
        for unit in range(getattr(session.first, total), getattr(end, total))
    }


def _lines(segments: list[tuple[ModelSession, Totals]]) -> set[tuple[int, int]]:
    """Return every line that lies on the segments."""
    return {
        (session.number, index)
        for session, end in segments
        for index, line in enumerate(session.lines)
        if line.totals.microbatches <= end.microbatches
    }
