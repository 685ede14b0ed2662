"""What a run measured, in a size that can be drawn: gathered on the pass that checks every rule.

Memory is bounded whatever the log's length; what is left out between two points of a curve lies between its extremes,
which are kept (`ledger.audit.series`). Names that a record chooses (groups, memories, splits) are bounded in number.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from ledger.audit.reconciliation import reconcile
from ledger.audit.series import KEPT_BUCKETS, Piece, Point, Series
from ledger.audit.stream import Checker, Stream
from ledger.history import known_from_event
from ledger.laws.schedules import Schedule, learning_rate, parse_schedule
from ledger.records.documents import Verdict
from ledger.records.events import (
    AnyEvent,
    Checkpoint,
    Overflow,
    SessionEnd,
    SessionStart,
    Train,
    UnknownEvent,
    Validation,
)
from ledger.records.fields import Measurement
from ledger.records.parts import RunFacts
from ledger.records.sections import OptimizerSection

__all__ = ["Measured", "RateLaw", "RunCharts", "ShownCheckpoint", "chart_run"]

MAX_NAMES: Final = 6
"""Curves of one kind that are kept apart by a name which the records choose."""
SHOWN_CHECKPOINTS: Final = 20
KEPT_MARKS: Final = 60
"""Places of non-finite measurements that are kept, by the same rule as points."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One measurement over a run: what is kept of its finite points, and where it was not finite."""

    name: str
    pieces: list[Piece]
    nonfinite: list[Piece]
    count: int
    """Finite measurements, exactly, superseded ones included."""
    nonfinite_count: int

    @property
    def branch(self) -> list[Point]:
        """The points on the current branch, in order."""
        return list(chain.from_iterable(piece.points for piece in self.pieces if piece.on_branch))

    @property
    def superseded(self) -> list[Piece]:
        """The pieces off the branch."""
        return [piece for piece in self.pieces if not piece.on_branch]


@dataclass(frozen=True, kw_only=True)
class RateLaw:
    """The schedule of the last session's recipe."""

    schedule: Schedule
    optimizer: OptimizerSection
    tokens_per_update: int

    def rate(self, group: str, step: int) -> float:
        """Return the rate of a group at an update (from 1)."""
        base = self.optimizer.base_rate(group)
        return learning_rate(self.schedule, step=step, tokens_per_update=self.tokens_per_update, base=base)


@dataclass(frozen=True, kw_only=True)
class ShownCheckpoint:
    """One of the latest checkpoints."""

    path: str
    kind: str
    step: int
    session: int
    bytes: int
    seconds: float
    on_branch: bool
    is_pruned: bool


@dataclass(frozen=True, kw_only=True)
class RunCharts:
    """A run as a report shows it. Rates are tokens per second."""

    verdict: Verdict
    facts: RunFacts | None
    target_step: int | None
    last_step: int
    """The greatest step of any session."""
    loss: Measured
    evaluations: list[Measured]
    """By split."""
    complete_evaluations: dict[str, int]
    """Split to how many of its evaluations measured every target position."""
    grad_norm: Measured
    """Of each window the greatest norm before clipping."""
    clip_norm: float | None
    rates: list[Measured]
    """Learning rate by group."""
    law: RateLaw | None
    skipped: Measured
    """The running total of skipped attempts."""
    skip_reasons: dict[str, int]
    """Of all sessions."""
    loss_scale: Measured
    training_rate: Measured
    wall_rate: Measured
    training_tokens_per_second: float | None
    wall_tokens_per_second: float | None
    memory: list[Measured]
    phases: dict[str, float]
    """Seconds of each phase, of the sessions that ended."""
    checkpoints: list[ShownCheckpoint]
    checkpoint_count: int
    checkpoint_bytes: int
    checkpoint_seconds: float
    """Seconds for which all of them blocked training."""
    left_out: list[str]
    """Curves that are not shown because there are too many."""


def chart_run(
    run_dir: str | os.PathLike[str],
    *,
    rehash: bool = False,
    data: str | os.PathLike[str] | None = None,
    buckets: int = KEPT_BUCKETS,
) -> RunCharts:
    """Check every rule and gather what a report draws, in one pass. `buckets` bounds the points of each curve.

    Raises:
        UsageError, InvalidDocumentError, NewerVersionError, UnsafeError, StorageError: as `reconcile`.
    """
    gathered: list[ChartChecker] = []

    def make(stream: Stream) -> Checker:
        gathered.append(ChartChecker(stream, buckets=buckets))
        return gathered[0]

    verdict = reconcile(run_dir, rehash=rehash, data=data, also=make)
    return gathered[0].charts(verdict)


class _Curve:
    """The finite and the other points of one measurement."""

    def __init__(self, name: str, *, buckets: int) -> None:
        self.name = name
        self.finite = Series(limit=buckets)
        self.others = Series(limit=KEPT_MARKS)

    def add(self, event: AnyEvent | UnknownEvent, value: Measurement | None) -> None:
        if isinstance(value, str):
            self.others.add(event.session, Point(event.step, event.microbatches, 0.0))
        elif value is not None:
            self.finite.add(event.session, Point(event.step, event.microbatches, float(value)))


@dataclass
class _Curves:
    """The curves of one kind, by a name that the records choose."""

    kind: str
    buckets: int
    curves: dict[str, _Curve] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)

    def add(self, event: AnyEvent | UnknownEvent, name: str, value: Measurement) -> None:
        curve = self.curves.get(name)
        if curve is None:
            if len(self.curves) == MAX_NAMES:
                if len(self.left_out) < MAX_NAMES:
                    self.left_out.add(name)
                return
            curve = self.curves[name] = _Curve(name, buckets=self.buckets)
        curve.add(event, value)


class ChartChecker(Checker):
    """Gathers what a report draws; it finds nothing."""

    def __init__(self, stream: Stream, *, buckets: int) -> None:
        super().__init__(stream)
        self._loss = _Curve("loss", buckets=buckets)
        self._norm = _Curve("gradient norm", buckets=buckets)
        self._skipped = _Curve("skipped", buckets=buckets)
        self._scale = _Curve("loss scale", buckets=buckets)
        self._training = _Curve("training only", buckets=buckets)
        self._wall = _Curve("wall clock", buckets=buckets)
        self._named = {kind: _Curves(kind, buckets) for kind in ("evaluation", "learning rate", "memory")}
        self._complete: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._phases: Counter[str] = Counter()
        self._latest: deque[Checkpoint] = deque(maxlen=SHOWN_CHECKPOINTS)
        self._checkpoint_count = self._checkpoint_bytes = self._last_step = 0
        self._checkpoint_seconds = self._window_seconds = 0.0
        self._window_tokens = 0
        self._before: AnyEvent | None = None
        """The train event or session start from which the next train event's wall clock counts."""

    def on_session_start(self, event: SessionStart) -> None:
        """Let a curve begin where the session does."""
        self._before = event
        self._skipped.add(event, event.skipped)

    def on_train(self, event: Train) -> None:
        """Take what a window measured."""
        window = event.window
        self._loss.add(event, event.loss)
        self._norm.add(event, event.grad_norm_max)
        self._skipped.add(event, event.skipped)
        self._scale.add(event, event.loss_scale)
        for group, rate in (event.lr or {}).items():
            self._named["learning rate"].add(event, group, rate)
        for name, amount in event.memory.items():
            self._named["memory"].add(event, name, amount)
        self._window_tokens += window.tokens
        self._window_seconds += window.seconds
        if window.seconds > 0:
            self._training.add(event, window.tokens / window.seconds)
        if self._before is not None and event.elapsed > self._before.elapsed:
            tokens = max(0, event.tokens_seen - self._before.tokens_seen)
            self._wall.add(event, tokens / (event.elapsed - self._before.elapsed))
        self._before = event

    def on_overflow(self, event: Overflow) -> None:
        """Count a skipped attempt."""
        self._skipped.add(event, event.skipped)
        self._reasons[event.reason] += 1
        if event.loss_scale is not None:
            self._scale.add(event, event.loss_scale.after)

    def on_val(self, event: Validation) -> None:
        """Take an evaluation."""
        self._named["evaluation"].add(event, event.split, event.loss)
        if event.split in self._named["evaluation"].curves:
            self._complete[event.split] += event.complete

    def on_checkpoint(self, event: Checkpoint) -> None:
        """Add up checkpoints; a later session may start from any of them."""
        self._latest.append(event)
        self._checkpoint_count += 1
        self._checkpoint_bytes += event.bytes
        self._checkpoint_seconds += event.seconds
        for curve in self._all():
            curve.finite.cut(event.session, event.at.microbatches)

    def on_session_end(self, event: SessionEnd) -> None:
        """Add up the phases."""
        for name, seconds in event.phases.items():
            if name in self._phases or len(self._phases) < 4 * MAX_NAMES:
                self._phases[name] += seconds  # type: ignore[assignment]

    def on_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Note how far any session came."""
        self._last_step = max(self._last_step, event.step)

    def _all(self) -> list[_Curve]:
        named = chain.from_iterable(curves.curves.values() for curves in self._named.values())
        return [self._loss, self._norm, self._skipped, self._scale, self._training, self._wall, *named]

    def charts(self, verdict: Verdict) -> RunCharts:
        """Return what was gathered."""
        history = self.stream.history
        track = self.stream.track_of(history.sessions[-1].number) if history.sessions else None
        optimizer = None if track is None or track.sections is None else track.sections.optimizer
        elapsed = sum(session.latest.elapsed for session in history.sessions)
        return RunCharts(
            verdict=verdict,
            facts=history.facts,
            target_step=history.target_step(),
            last_step=self._last_step,
            loss=self._measured(self._loss),
            evaluations=self._measured_by_name("evaluation"),
            complete_evaluations=dict(self._complete),
            grad_norm=self._measured(self._norm),
            clip_norm=None if optimizer is None else optimizer.clip_norm,
            rates=self._measured_by_name("learning rate"),
            law=self._law(),
            skipped=self._measured(self._skipped),
            skip_reasons=dict(sorted(self._reasons.items())),
            loss_scale=self._measured(self._scale),
            training_rate=self._measured(self._training),
            wall_rate=self._measured(self._wall),
            training_tokens_per_second=_ratio(self._window_tokens, self._window_seconds),
            wall_tokens_per_second=_ratio(history.spent().tokens_seen, elapsed),
            memory=self._measured_by_name("memory"),
            phases=dict(self._phases),
            checkpoints=self._checkpoints(),
            checkpoint_count=self._checkpoint_count,
            checkpoint_bytes=self._checkpoint_bytes,
            checkpoint_seconds=self._checkpoint_seconds,
            left_out=[
                f"{curves.kind} {name}" for curves in self._named.values() for name in sorted(curves.left_out)
            ],
        )

    def _measured(self, curve: _Curve) -> Measured:
        branch = self.stream.history.branch()
        return Measured(
            name=curve.name,
            pieces=curve.finite.pieces(branch),
            nonfinite=curve.others.pieces(branch),
            count=curve.finite.count,
            nonfinite_count=curve.others.count,
        )

    def _measured_by_name(self, kind: str) -> list[Measured]:
        return [self._measured(curve) for _, curve in sorted(self._named[kind].curves.items())]

    def _law(self) -> RateLaw | None:
        sessions = self.stream.history.sessions
        track = self.stream.track_of(sessions[-1].number) if sessions else None
        sections = None if track is None else track.sections
        if track is None or sections is None or sections.schedule is None or sections.optimizer is None:
            return None
        schedule = _known_schedule(sections.schedule)
        if schedule is None:
            return None
        return RateLaw(
            schedule=schedule, optimizer=sections.optimizer, tokens_per_update=track.tokens_per_update
        )

    def _checkpoints(self) -> list[ShownCheckpoint]:
        history = self.stream.history
        return [
            ShownCheckpoint(
                path=event.path,
                kind=event.kind,
                step=event.at.step,
                session=event.session,
                bytes=event.bytes,
                seconds=event.seconds,
                on_branch=history.is_on_branch(known_from_event(event)),
                is_pruned=event.path in history.pruned,
            )
            for event in self._latest
        ]


def _known_schedule(section: Mapping[str, object]) -> Schedule | None:
    try:
        return parse_schedule(section)
    except ValueError:
        return None  # LG208 says why


def _ratio(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if seconds > 0 else None
