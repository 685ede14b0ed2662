"""LG301 to LG305, LG307 to LG309: sessions, and what each of them started from."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import ClassVar, Final

from ledger.audit.causes import cause_of_restored
from ledger.audit.lineage import ParentCheckpoint, resolve_parent, starts_from_beginning
from ledger.audit.positions import spell
from ledger.audit.replay import describe
from ledger.audit.stream import Checker, Stream
from ledger.records.events import SessionStart
from ledger.records.fields import FIRST_DATA_CHAIN, Json
from ledger.records.layout import LOG, checkpoint_name
from ledger.records.parts import COUNTER_NAMES, ZERO, StateDigests, Superseded

__all__ = ["GeometryChecker", "ParentChecker", "SessionChecker", "StartChecker"]

STATE_PARTS: Final[tuple[str, ...]] = ("model", "optimizer", "schedule", "cursor", "rng", "scaler", "guards")
LATER_STARTS: Final = ("resume", "auto", "restart")


class ParentChecker(Checker):
    """LG301, LG303, LG305, LG308: what a session says it starts from."""

    rules: ClassVar[tuple[str, ...]] = ("LG301", "LG303", "LG305", "LG308")

    def on_session_start(self, event: SessionStart) -> None:
        """Check the choice, the parent and what was superseded, against the history before."""
        if event.session > 1 and event.start not in LATER_STARTS:
            self.findings.add(
                "LG308",
                f"session {event.session} starts {event.start!r}, expected one of {', '.join(LATER_STARTS)}",
                where=self.stream.where,
            )
        elif (problem := self._parent_problem(event)) is not None:
            self.findings.add("LG301", f"session {event.session} {problem}", where=self.stream.where)
        else:
            self._check_path(event)
        self._check_superseded(event)

    def _parent_problem(self, event: SessionStart) -> str | None:
        if event.session == 1:
            return self._first_problem(event)
        if starts_from_beginning(self.stream, event):
            return self._beginning_problem(event)
        if event.start == "restart":
            return "restarts, but names a checkpoint as its parent"
        if resolve_parent(self.stream, event) is None and event.parent is not None:
            return (
                f"starts from {event.parent.checkpoint}, which neither an event of this log nor a complete "
                "checkpoint with that manifest vouches for"
            )
        return self._choice_problem(event)

    def _choice_problem(self, event: SessionStart) -> str | None:
        """What chooses by itself takes the latest checkpoint; one that is gone since may not have been usable."""
        parent = resolve_parent(self.stream, event)
        if event.start != "auto" or event.parent is None or parent is None:
            return None
        earlier = self.stream.history.before(event.session)
        latest = earlier.latest_with_event()
        if latest is None or latest.path not in self.stream.files.complete_checkpoints:
            return None
        further = latest.counters.microbatches - parent.counters.microbatches
        if further <= 0:
            return None
        return (
            f"chose {event.parent.checkpoint} by itself, although the branch held {latest.path}, which stands "
            f"{further} microbatches further on"
        )

    def _first_problem(self, event: SessionStart) -> str | None:
        facts = event.run
        run_parent = None if facts is None else facts.parent
        if facts is None:
            return "is the first but does not state the run's facts"
        if event.start not in {"fresh", "branch"}:
            return f"is the first but starts {event.start!r}, expected fresh or branch"
        if (event.start == "branch") != (run_parent is not None) or (run_parent is None) != (
            event.parent is None
        ):
            return (
                f"starts {event.start!r} with the parent {event.parent}, but the run's parent is {run_parent}"
            )
        if run_parent and event.parent:
            named = (event.parent.run, event.parent.manifest_sha256)
            if named != (run_parent.run, run_parent.manifest_sha256):
                return "starts from another checkpoint than the one that the run says it branched from"
            if run_parent.run == event.run_id:
                return "says that the run branched from itself"
        return None

    def _beginning_problem(self, event: SessionStart) -> str | None:
        facts = self.stream.history.facts
        run_parent = None if facts is None else facts.parent
        stated = None if event.parent is None else event.parent.manifest_sha256
        if stated != (None if run_parent is None else run_parent.manifest_sha256):
            return f"starts from the checkpoint {stated} of another run; the run's own parent is {run_parent}"
        if event.start == "resume":
            return "resumes, but names no checkpoint of this run as its parent"
        earlier = self.stream.history.before(event.session)
        latest = earlier.latest_with_event()
        if event.start == "auto" and latest is not None:
            return f"chose the run's beginning by itself, although the branch held {latest.path}"
        return None

    def _check_path(self, event: SessionStart) -> None:
        parent, resolved = event.parent, resolve_parent(self.stream, event)
        if parent is None or resolved is None:
            return
        is_own = not starts_from_beginning(self.stream, event)
        stated = (parent.run, parent.session, parent.step)
        found = (resolved.run, resolved.session, resolved.counters.step)
        is_named = PurePosixPath(parent.checkpoint).name == checkpoint_name(step=found[2], session=found[1])
        if stated != found or not is_named or (is_own and parent.session >= event.session):
            self.findings.add(
                "LG305",
                f"session {event.session} says that its parent {parent.checkpoint} is of run {stated[0]}, session "
                f"{stated[1]}, step {stated[2]}; it is of run {found[0]}, session {found[1]}, step {found[2]}",
                where=self.stream.where,
                evidence={"stated": list(stated), "found": list(found)},
            )

    def _check_superseded(self, event: SessionStart) -> None:
        earlier = self.stream.history.before(event.session)
        expected = earlier.superseded_by(event.parent, event.counters)
        wrong = [
            f"{name} {getattr(event.superseded, name)} instead of {getattr(expected, name)}"
            for name in Superseded.__struct_fields__
            if getattr(event.superseded, name) != getattr(expected, name)
        ]
        before = earlier.sessions[-1] if earlier.sessions else None
        previous = "none" if before is None else "unclean" if before.end is None else "ended"
        if event.previous_session != previous:
            self.findings.add(
                "LG303",
                f"session {event.session} calls the session before {event.previous_session!r}, the log says "
                f"{previous!r}",
                where=self.stream.where,
            )
        if wrong and not any(track.is_damaged for track in self.stream.tracks.values()):
            self.findings.add(
                "LG303",
                f"session {event.session} states as superseded {', '.join(wrong)}",
                where=self.stream.where,
            )

    def finish(self) -> None:
        """Say how far the parent of a branch run was looked at."""
        facts = self.stream.history.facts
        if facts is not None and facts.parent is not None:
            self.findings.skip(
                "the parent run",
                f"of run {facts.parent.run} nothing was looked at but the manifest and the recipe in parent/; whether "
                "its log and its checkpoint still hold, only ledger reconcile of that run tells",
            )


class StartChecker(Checker):
    """LG302: a session starts exactly where its parent stood."""

    rules: ClassVar[tuple[str, ...]] = ("LG302",)

    def on_session_start(self, event: SessionStart) -> None:
        """Compare the session's beginning with its parent."""
        facts = self.stream.history.facts
        run_parent = None if facts is None else facts.parent
        is_initialised = run_parent is not None and run_parent.mode == "initialise"
        from_beginning = starts_from_beginning(self.stream, event)
        if event.parent is None or (from_beginning and is_initialised):
            self._check_zero(event)
        parent = resolve_parent(self.stream, event)
        if parent is None:
            if from_beginning and event.parent is not None:
                self.findings.skip("LG302", "the manifest that the run branched from is not at hand")
            return
        if from_beginning and is_initialised:
            self._check_state(event, parent.state, parts=("model",))
        else:
            self._check_parent(event, parent)

    def _check_zero(self, event: SessionStart) -> None:
        if event.counters != ZERO:
            self._report(event, f"counters are {describe(event.counters)}", "all 0")
        if any(at.epoch or at.offset for at in event.cursor.values()):
            self._report(event, f"the cursor is {spell(event.cursor)}", "0 everywhere")
        if event.data_chain != FIRST_DATA_CHAIN:
            self._report(event, f"data_chain is {event.data_chain}", "its first value")

    def _check_parent(self, event: SessionStart, parent: ParentCheckpoint) -> None:
        for name in COUNTER_NAMES:
            found, expected = getattr(event, name), getattr(parent.counters, name)
            if found != expected:
                self._report(event, f"{name} is {found}", f"the parent's {expected}")
        if parent.cursor is not None and event.cursor != parent.cursor:
            self._report(
                event, f"the cursor is {spell(event.cursor)}", f"the parent's {spell(parent.cursor)}"
            )
        if parent.data_chain is not None and event.data_chain != parent.data_chain:
            self._report(event, f"data_chain is {event.data_chain}", f"the parent's {parent.data_chain}")
        track = self.stream.track_of(parent.session)
        parts = STATE_PARTS
        if track is not None and track.start.data_parallel != event.data_parallel:
            self.findings.skip(
                "LG302 rng", "random generators cannot be compared across another number of ranks"
            )
            parts = tuple(part for part in STATE_PARTS if part != "rng")
        self._check_state(event, parent.state, parts=parts)

    def _check_state(self, event: SessionStart, expected: StateDigests, *, parts: tuple[str, ...]) -> None:
        for part in parts:
            found, wanted = getattr(event.state, part), getattr(expected, part)
            if found != wanted:
                self._report(
                    event,
                    f"the state of {part} has digest {found} after restoring",
                    f"the parent's {wanted}: {cause_of_restored(part)}",
                )

    def _report(self, event: SessionStart, found: str, expected: str) -> None:
        self.findings.add(
            "LG302", f"session {event.session}: {found}, expected {expected}", where=self.stream.where
        )


class SessionChecker(Checker):
    """LG304, LG307: how sessions end."""

    rules: ClassVar[tuple[str, ...]] = ("LG304", "LG307")

    def finish(self) -> None:
        """Look at every session's end."""
        sessions = self.stream.history.sessions
        for session in sessions:
            end = session.end
            if end is None:
                continue
            where = f"{LOG} seq {end.seq}"
            if session.work.step == 0 and end.status != "closed":
                self.findings.add(
                    "LG307",
                    f"session {session.number} ended {end.status!r} without having applied an update",
                    where=where,
                )
            elif session.work.step and end.status == "closed":
                self.findings.add(
                    "LG307",
                    f"session {session.number} ended closed, although it applied {session.work.step} updates",
                    where=where,
                )
        if sessions and sessions[-1].end is None and not self.stream.is_live:
            self.findings.add(
                "LG304",
                f"session {sessions[-1].number} has no session_end: it was killed, or its end was never "
                "written",
                where=f"{LOG} seq {sessions[-1].latest.seq}",
            )


class GeometryChecker(Checker):
    """LG309: the geometry is the same in all sessions."""

    rules: ClassVar[tuple[str, ...]] = ("LG309",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._first: SessionStart | None = None

    def on_session_start(self, event: SessionStart) -> None:
        """Compare with the first session; and equal shares of a microbatch go to all replicas."""
        first = self._first = self._first or event
        if event.tokens_per_microbatch % event.data_parallel:
            self.findings.add(
                "LG309",
                f"session {event.session} states microbatches of {event.tokens_per_microbatch} tokens, which "
                f"{event.data_parallel} replicas cannot share equally",
                where=self.stream.where,
            )
        for name in ("data_parallel", "tokens_per_microbatch", "accumulation"):
            found, expected = getattr(event, name), getattr(first, name)
            if found != expected:
                self.findings.add(
                    "LG309",
                    f"session {event.session} has {name} {found}, session {first.session} had {expected}",
                    where=self.stream.where,
                    evidence={"found": found, "expected": expected},
                )

    def finish(self) -> None:
        """Compare how many random generators the checkpoints hold."""
        first: tuple[str, object] | None = None
        for path, folder in self.stream.files.complete_checkpoints.items():
            trainer = self.stream.files.trainer_state(folder).document
            if trainer is None:
                continue  # LG401 to LG403 say why
            form = _form(trainer.rng)
            first = first or (path, form)
            if form != first[1]:
                self.findings.add(
                    "LG309",
                    f"holds another number of random generators than {first[0]}: another number of ranks or devices",
                    where=path,
                )


def _form(value: Json) -> object:
    """Return the keys and lengths of a value without what they hold."""
    if isinstance(value, dict):
        return {key: _form(part) for key, part in value.items()}
    return [_form(part) for part in value] if isinstance(value, list) else None
