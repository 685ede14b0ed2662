"""The history of a run: sessions, segments, the current branch, what was superseded, what was spent. Pure.

A session's parent is a checkpoint of this run or the run's beginning, so the sessions form a tree. The *current
branch* follows the parents back from the last session; of each ancestor it keeps the events whose `microbatches`
do not exceed where the child took off. The rest is superseded: it stays, marked.

`History` is fed event by event, in the order of the log, and keeps eight bytes per event, checkpoints and evaluations
apart. It believes what the events say; whether they may be believed is the audit's question.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ledger.recipes import TARGET_FIELD
from ledger.records.documents import RunDocument, RunSession
from ledger.records.events import (
    Amendment,
    Checkpoint,
    Event,
    Pruned,
    SessionEnd,
    SessionStart,
    TailRecovered,
    Train,
    UnknownEvent,
    Validation,
)
from ledger.records.fields import MAX_INTEGER, is_finite
from ledger.records.parts import (
    ZERO,
    Counters,
    LogPosition,
    Parent,
    RunFacts,
    Superseded,
    add_counters,
    subtract_counters,
)

__all__ = ["Best", "History", "KnownCheckpoint", "Segment", "Session", "known_from_event"]


@dataclass(frozen=True, kw_only=True)
class KnownCheckpoint:
    """A checkpoint that an event, or a complete folder without one, vouches for."""

    path: str
    session: int
    counters: Counters
    manifest_sha256: str
    seq: int
    """`seq` of the last event before it was captured."""
    kind: str
    seconds: float | None = field(default=None, compare=False)
    """How long the loop was blocked by it; None without an event."""


@dataclass(frozen=True, kw_only=True)
class Best:
    """The lowest validation loss of the current branch, and the checkpoint of that moment."""

    evaluation: Validation
    checkpoint: KnownCheckpoint | None
    """None where none was taken then, or where it was pruned since."""


@dataclass(kw_only=True)
class Session:
    """One session as its events tell it; it grows while events are added."""

    start: SessionStart
    position: LogPosition
    latest: Event | UnknownEvent
    """Its last event so far."""
    end: SessionEnd | None = None
    amendments: list[Amendment] = field(default_factory=list)
    checkpoints: list[KnownCheckpoint] = field(default_factory=list)
    evaluations: list[Validation] = field(default_factory=list)
    quarantined: list[str] = field(default_factory=list)
    marks: array[int] = field(default_factory=lambda: array("Q"))
    """`microbatches` of each event (of a checkpoint: when it captured), which places it on a branch or off it."""

    @property
    def number(self) -> int:
        """1, 2, … in the order of the log."""
        return self.start.session

    @property
    def first(self) -> Counters:
        """The totals this session started from."""
        return self.start.counters

    @property
    def last(self) -> Counters:
        """The totals on its last line."""
        return self.latest.counters

    @property
    def parent_session(self) -> int | None:
        """The session of this run whose checkpoint it started from; None from the run's beginning."""
        parent = self.start.parent
        return None if parent is None or parent.run != self.start.run_id else parent.session

    @property
    def work(self) -> Counters:
        """What this session itself did, as far as it was logged."""
        return subtract_counters(self.last, self.first)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """The part of one session that lies on a branch: from its start up to `end`."""

    session: Session
    end: Counters

    def holds(self, microbatches: int) -> bool:
        """Tell whether an event with this many microbatches lies on the segment."""
        return microbatches <= self.end.microbatches


class History:
    """All sessions of one run, fed in log order by `add`."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.pruned: dict[str, Pruned] = {}
        """Checkpoint path to the event that says retention removed it."""
        self._is_dense = True
        """Whether the sessions are 1, 2, … as they should be."""

    def add(self, event: Event | UnknownEvent, *, chain: str) -> None:
        """Take in the next event of the log and its chain digest. Events outside any session are ignored."""
        if isinstance(event, SessionStart):
            self._open(event, LogPosition(event.seq, chain))
        session = self.sessions[-1] if self.sessions else None
        if session is None or session.start.session != event.session:
            return
        session.latest = event
        if isinstance(event, Train):  # nearly all are
            session.marks.append(event.microbatches)
            return
        session.marks.append(event.at.microbatches if isinstance(event, Checkpoint) else event.microbatches)
        match event:
            case Checkpoint():
                session.checkpoints.append(known_from_event(event))
            case Validation():
                session.evaluations.append(event)
            case Pruned():
                self.pruned[event.path] = event
            case Amendment():
                session.amendments.append(event)
            case TailRecovered():
                session.quarantined.append(event.file)
            case SessionEnd():
                session.end = event

    def _open(self, event: SessionStart, position: LogPosition) -> None:
        self.sessions.append(Session(start=event, position=position, latest=event))
        self._is_dense = self._is_dense and event.session == len(self.sessions)

    @property
    def run_id(self) -> str | None:
        """The run's id as its first session_start states it."""
        return self.sessions[0].start.run_id if self.sessions else None

    @property
    def starting_counters(self) -> Counters:
        """The run's starting counters: 0, or those of the checkpoint a branch run continues."""
        return self.sessions[0].first if self.sessions else ZERO

    @property
    def facts(self) -> RunFacts | None:
        """The fixed part of run.json, from the first session_start."""
        return self.sessions[0].start.run if self.sessions else None

    def branch(self) -> list[Segment]:
        """Return the current branch, oldest segment first; empty without a session."""
        return [*self._back_from_last()][::-1]

    def _back_from_last(self) -> Iterator[Segment]:
        """Yield the current branch, newest segment first."""
        for last in self.sessions[-1:]:
            yield Segment(session=last, end=last.last)
            yield from self._back(last.start.parent, last.first)

    def _back(self, parent: Parent | None, start: Counters) -> Iterator[Segment]:
        child = len(self.sessions) + 1
        while parent is not None and parent.run == self.run_id and 1 <= parent.session < child:
            session = self.session(parent.session)
            if session is None:
                return
            yield Segment(session=session, end=start)
            child, parent, start = session.number, session.start.parent, session.first

    def session(self, number: int) -> Session | None:
        """Return the session of this number, None where the log has none."""
        index = number - 1
        if index < len(self.sessions) and self.sessions[index].number == number:
            return self.sessions[index]
        return next((session for session in self.sessions if session.number == number), None)

    def superseded_by(self, parent: Parent | None, start: Counters) -> Superseded:
        """Return what the current branch loses to a new session with this parent and these starting counters."""
        return _superseded(self._back_from_last(), self._back(parent, start))

    def before(self, number: int) -> History:
        """Return the history as it stood before session `number` (sharing its sessions)."""
        earlier = History()
        earlier._is_dense = self._is_dense
        earlier.sessions = self.sessions[: max(0, number - 1)]
        if not self._is_dense:
            earlier.sessions = [session for session in self.sessions if session.number < number]
        earlier.pruned = self.pruned
        return earlier

    def branch_counters(self) -> Counters:
        """Return the totals that the current branch saw, from the run's starting counters."""
        return subtract_counters(self.sessions[-1].last, self.starting_counters) if self.sessions else ZERO

    def spent(self) -> Counters:
        """Return the work of all sessions together, superseded work included, as far as it was logged."""
        return add_counters(session.work for session in self.sessions)

    def checkpoints(self) -> Iterator[KnownCheckpoint]:
        """Yield every checkpoint that has an event, in the order of the log."""
        for session in self.sessions:
            yield from session.checkpoints

    def is_on_branch(self, checkpoint: KnownCheckpoint) -> bool:
        """Tell whether a checkpoint lies on the current branch."""
        return bool(self.on_branch([checkpoint]))

    def on_branch(self, checkpoints: Iterable[KnownCheckpoint]) -> list[KnownCheckpoint]:
        """Return those of the checkpoints that lie on the current branch."""
        segments = {segment.session.number: segment for segment in self.branch()}
        return [
            known
            for known in checkpoints
            if known.session in segments and segments[known.session].holds(known.counters.microbatches)
        ]

    def latest_with_event(self) -> KnownCheckpoint | None:
        """Return the checkpoint furthest along the current branch of those that have an event and were not pruned."""
        for segment in self._back_from_last():
            known = [found for found in segment.session.checkpoints if found.path not in self.pruned]
            if kept := [found for found in known if segment.holds(found.counters.microbatches)]:
                return max(kept, key=lambda found: found.counters.microbatches)
        return None

    def kept_steps(self, session: Session, *, most: int = 200) -> list[int]:
        """Return the steps of a session's checkpoints that were not pruned; of very many, `most` evenly chosen."""
        steps = [known.counters.step for known in session.checkpoints if known.path not in self.pruned]
        if len(steps) <= most:
            return steps
        return [steps[index * (len(steps) - 1) // (most - 1)] for index in range(most)]

    def latest(self, complete: Iterable[KnownCheckpoint]) -> KnownCheckpoint | None:
        """Return, of the complete checkpoints given, the one furthest along the current branch.

        Never by a clock, a name's order or a link: by recorded `microbatches`, then session.
        """
        return max(
            self.on_branch(complete),
            key=lambda known: (known.counters.microbatches, known.session),
            default=None,
        )

    def evaluations(self) -> list[Validation]:
        """Return the evaluations of the current branch, in its order."""
        return [
            evaluation
            for segment in self.branch()
            for evaluation in segment.session.evaluations
            if segment.holds(evaluation.microbatches)
        ]

    def best(self, *, must_be_kept: bool = False) -> Best | None:
        """Return the lowest finite validation loss of the current branch; the earliest of equal ones.

        Losses are compared only where they measured the same: of the extents (split, data, tokens) that the branch
        was evaluated on, the one measured most often counts, of several the largest. With `must_be_kept` only moments
        count of which a checkpoint is kept.
        """
        known = [found for found in self.on_branch(self.checkpoints()) if found.path not in self.pruned]
        kept = {found.counters.microbatches: found for found in known}
        measured = [found for found in self.evaluations() if is_finite(found.loss)]
        series = Counter((found.split, found.data_sha256, found.tokens) for found in measured)
        extent = max(series, key=lambda one: (series[one], one[2]), default=None)
        candidates = [
            Best(evaluation=found, checkpoint=kept.get(found.microbatches))
            for found in measured
            if (found.split, found.data_sha256, found.tokens) == extent
        ]
        if must_be_kept:
            candidates = [best for best in candidates if best.checkpoint is not None]
        return min(candidates, key=lambda best: best.evaluation.loss, default=None)

    def target_step(self) -> int | None:
        """Return the target in force: the last session's, after its amendments."""
        return self.target_steps().get(self.sessions[-1].number) if self.sessions else None

    def target_steps(self) -> dict[int, int]:
        """Return the target that was in force at the end of each session; empty where the log states no target."""
        targets: dict[int, int] = {}
        if (facts := self.facts) is None:
            return targets
        for session in self.sessions:
            parent = session.start.parent
            inherited = targets.get(parent.session) if parent and parent.run == self.run_id else None
            target = facts.target_step if inherited is None else inherited
            for amendment in session.amendments:
                if amendment.field == TARGET_FIELD and isinstance(amendment.to, int):
                    target = amendment.to
            targets[session.number] = target
        return targets

    def run_document(self) -> RunDocument | None:
        """Return run.json as this log says it is; None where no first session states the run's facts, or too much."""
        facts, target = self.facts, self.target_step()
        if facts is None or target is None:
            return None
        first = self.sessions[0].start
        planned = max(0, target - first.step) * first.tokens_per_microbatch * first.accumulation
        if planned > MAX_INTEGER:
            return None
        return RunDocument(
            run_id=first.run_id,
            name=facts.name,
            purpose=facts.purpose,
            parent=facts.parent,
            recipe_lock_sha256=facts.recipe_lock_sha256,
            data=first.data,
            model=facts.model,
            optimizer=facts.optimizer,
            target_step=target,
            planned_tokens=planned,
            sessions=[_index_entry(session) for session in self.sessions],
        )


def known_from_event(event: Checkpoint) -> KnownCheckpoint:
    """Return the checkpoint that an event speaks of."""
    return KnownCheckpoint(
        path=event.path,
        session=event.session,
        counters=event.at.counters,
        manifest_sha256=event.manifest_sha256,
        seq=event.at.seq,
        kind=event.kind,
        seconds=event.seconds,
    )


def _index_entry(session: Session) -> RunSession:
    start = session.start
    return RunSession(
        session=start.session,
        session_id=start.session_id,
        started=start.time,
        parent=start.parent,
        recipe_sha256=start.recipe_sha256,
        environment_sha256=start.environment_sha256,
        argv=start.argv,
        log=session.position,
    )


def _superseded(before: Iterator[Segment], after: Iterator[Segment]) -> Superseded:
    """Compare two branches, newest segment first; behind a segment that they share they are the same."""
    lost_work: list[Counters] = []
    lost_events = 0
    kept = next(after, None)
    for segment in before:
        session = segment.session
        while kept is not None and kept.session.number > session.number:
            kept = next(after, None)
        end = kept.end if kept is not None and kept.session is session else None
        if end == segment.end:
            break
        lost_work.append(subtract_counters(segment.end, session.first if end is None else end))
        kept_to = -1 if end is None else end.microbatches
        lost_events += sum(1 for mark in session.marks if kept_to < mark <= segment.end.microbatches)
    total = add_counters(lost_work)
    return Superseded(
        updates=total.step,
        attempts=total.attempts,
        microbatches=total.microbatches,
        tokens=total.tokens_seen,
        events=lost_events,
    )
