"""LG8: the run against an uninterrupted control, compared in the order that locates a cause."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from ledger.audit.causes import (
    STATE_ORDER,
    cause_of_batches,
    cause_of_measure,
    cause_of_start,
    differing_parts,
)
from ledger.audit.evidence import MEASURES, differing_measures, train_at
from ledger.audit.stream import Checker, Stream
from ledger.audit.track import Track
from ledger.records.events import Train
from ledger.records.fields import Json
from ledger.records.layout import LOG

__all__ = ["ControlChecker", "branch_rows"]

TOLERANCE: Final = 1e-3
"""Relative tolerance on loss, norm and rate where the recipe does not declare deterministic execution."""

LEAST_UPDATES: Final = 3
"""Updates that must have been compared after the last resume."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One train event on a branch."""

    track: Track
    index: int

    @property
    def microbatches(self) -> int:
        """Where its window ends."""
        return self.track.rows.microbatches[self.index]

    @property
    def step(self) -> int:
        """Its step."""
        return self.track.rows.step[self.index]

    def column(self, name: str) -> int:
        """Return its value in a column."""
        value: int = getattr(self.track.rows, name)[self.index]
        return value


Pairs = Sequence[tuple[Row, Row]]


class ControlChecker(Checker):
    """LG801 to LG804."""

    rules: ClassVar[tuple[str, ...]] = ("LG801", "LG802", "LG803", "LG804")

    def __init__(self, stream: Stream, *, control: Stream | None) -> None:
        super().__init__(stream)
        self._control = control
        self.verdicts: dict[str, Json] = {}
        """Rule to `bitwise`, `within tolerance`, `differs` or `not testable`, for the account."""
        self._stateless: list[int] = []
        """seq of the first train event without the state digests that its recipe asks for."""

    def on_train(self, event: Train) -> None:
        """Note where the evidence is missing that a comparison would need."""
        sections = None if self.stream.track is None else self.stream.track.sections
        logging = None if sections is None else sections.logging
        if logging is not None and logging.evidence and event.state is None and not self._stateless:
            self._stateless.append(event.seq)

    def finish(self) -> None:
        """Compare, item by item."""
        control = self._control
        if control is None:
            for rule in self.rules:
                self.findings.skip(rule, "no control was given (--control RUN)")
            for seq in self._stateless:
                self.findings.add(
                    "LG804",
                    "not testable against any control: the recipe asks for state digests, this event states none",
                    where=f"{LOG} seq {seq}",
                    severity="missing",
                )
            return
        if (why := self._untestable(control)) is not None:
            for rule in self.rules:
                self._conclude(rule, "not testable", why)
            return
        self._check_start(control)
        ours, theirs = branch_rows(self.stream), branch_rows(control)
        pairs = [(ours[place], theirs[place]) for place in sorted(ours.keys() & theirs.keys())]
        if (why := self._too_little(pairs)) is not None:
            for rule in ("LG802", "LG803", "LG804"):
                self._conclude(rule, "not testable", why)
            return
        self._check_data(pairs, control, ours=ours, theirs=theirs)
        self._check_measures(pairs, control)
        self._check_state(pairs, control)

    def _untestable(self, control: Stream) -> str | None:
        for name, stream in (("the run", self.stream), ("the control", control)):
            if not stream.history.sessions:
                return f"{name} has no session"
            for track in stream.tracks.values():
                logging = None if track.sections is None else track.sections.logging
                if logging is None or logging.interval != 1 or not logging.evidence:
                    return (
                        f"{name} does not record per-update evidence (logging interval 1 and state digests)"
                    )
        first, other = self.stream.history.sessions[0].start, control.history.sessions[0].start
        if first.identity_sha256 != other.identity_sha256:
            return "the control has another recipe identity"
        if control.findings.count("error"):
            return "the control's log is damaged: reconcile it by itself"
        if self.stream.history.run_id == control.history.run_id:
            return "the control is the run itself"
        return None

    def _too_little(self, pairs: Pairs) -> str | None:
        """A resume must have been crossed by enough updates; without one there is nothing to claim about it."""
        sessions = self.stream.history.sessions
        resumed_at = sessions[-1].first.microbatches if len(sessions) > 1 else -1
        after = sum(1 for ours, _ in pairs if ours.microbatches > resumed_at and ours.column("updates"))
        if after < LEAST_UPDATES:
            return f"only {after} updates after the last resume can be compared, {LEAST_UPDATES} are needed"
        return None

    def _check_start(self, control: Stream) -> None:
        first, other = self.stream.history.sessions[0].start, control.history.sessions[0].start
        parts = differing_parts(first.state, other.state)
        wrong = parts[0] if parts else None
        for name in ("cursor", "data_chain", "counters"):
            if wrong is None and getattr(first, name) != getattr(other, name):
                wrong = name
        if wrong is None:
            self._conclude("LG801", "bitwise")
            return
        what = f"the state of {wrong}" if wrong in STATE_ORDER else wrong
        problem = f"{what} differs before the first microbatch: {cause_of_start(wrong)}"
        self._conclude("LG801", "differs", problem)

    def _check_data(
        self, pairs: Pairs, control: Stream, *, ours: dict[int, Row], theirs: dict[int, Row]
    ) -> None:
        last = min(max(ours), max(theirs))
        # A window of skipped attempts alone is logged only where a checkpoint or an end follows it.
        unmatched = sorted(
            place
            for place in ours.keys() ^ theirs.keys()
            if place <= last and (ours.get(place) or theirs[place]).column("updates")
        )
        for first, second in pairs:
            if first.column("chain") != second.column("chain"):
                one, other = self._events(first, second, control)
                cause = ""
                if one is not None and other is not None:
                    cause = ": " + cause_of_batches(one, other, of=second.track)
                self._conclude("LG802", "differs", f"the batches differ at step {first.step}{cause}", first)
                return
        if unmatched:
            row = ours.get(unmatched[0]) or theirs[unmatched[0]]
            problem = (
                f"only one of the two ends an update after {unmatched[0]} microbatches (step {row.step}): it skipped "
                "or took an attempt that the other did not; compare their overflow events, or one log ends early"
            )
            self._conclude("LG802", "differs", problem)
            return
        self._conclude("LG802", "bitwise")

    def _check_measures(self, pairs: Pairs, control: Stream) -> None:
        is_bitwise = True
        for first, second in pairs:
            if all(first.column(name) == second.column(name) for name in ("measured", "step")):
                continue
            problem, is_close = self._describe(first, second, control)
            if not is_close:
                self._conclude("LG803", "differs", problem, first)
                return
            is_bitwise = False
        tolerance = f"values agree within {TOLERANCE} of each other, not bit for bit"
        self._conclude("LG803", "bitwise" if is_bitwise else "within tolerance", tolerance)

    def _describe(self, first: Row, second: Row, control: Stream) -> tuple[str, bool]:
        if first.column("step") != second.column("step"):
            return (
                f"after {first.microbatches} microbatches step is {first.step}, the control's {second.step}",
                False,
            )
        one, other = self._events(first, second, control)
        if one is None or other is None:
            return f"what was measured differs at step {first.step}", False
        name, ours, theirs = next(differing_measures(one, other), ("window", one.window, other.window))
        is_same_data = first.column("chain") == second.column("chain")
        same_data = " although batch digests agree" if is_same_data else ""
        cause = cause_of_measure(name, track=first.track, step=first.step, same_data=is_same_data)
        is_close = not _is_deterministic(first.track) and _are_close(one, other)
        what = f"{name} differs at step {first.step}{same_data} ({ours}, the control's {theirs})"
        return f"{what}, {cause}", is_close

    def _events(self, first: Row, second: Row, control: Stream) -> tuple[Train | None, Train | None]:
        """Read the two events again."""
        return (
            train_at(self.stream.files.run_dir, first.track, first.index),
            train_at(control.files.run_dir, second.track, second.index),
        )

    def _check_state(self, pairs: Pairs, control: Stream) -> None:
        if not all(_is_deterministic(first.track) for first, _ in pairs):
            why = "digests tell bitwise equality only, which this recipe does not declare"
            self._conclude("LG804", "not testable", why)
            return
        for first, second in pairs:
            if not first.column("state") or not second.column("state"):
                self._conclude("LG804", "not testable", f"no state digests at step {first.step}", first)
                return
            if first.column("state") != second.column("state"):
                self._conclude("LG804", "differs", self._describe_state(first, second, control), first)
                return
        self._conclude("LG804", "bitwise")

    def _describe_state(self, first: Row, second: Row, control: Stream) -> str:
        one, other = self._events(first, second, control)
        parts = None if one is None or other is None else differing_parts(one.state, other.state)
        named = [part for part in parts or () if part in ("model", "optimizer")] or ["model", "optimizer"]
        what = f"{' and '.join(named)} {'differ' if len(named) > 1 else 'differs'} after step {first.step}"
        if self.verdicts.get("LG803") == "differs":
            return f"{what}: see LG803 first"
        what += " although losses, norms and rates agree up to there"
        if named == ["optimizer"]:
            return f"{what}: look at moments, step counts or master weights that were not restored"
        return f"{what}: look at the update itself (the optimizer's state, weight decay, master weights) or at buffers"

    def _conclude(self, rule: str, verdict: str, problem: str = "", row: Row | None = None) -> None:
        self.verdicts[rule] = verdict
        where = LOG if row is None else f"{LOG} seq {row.column('seq')}"
        if verdict == "differs":
            self.findings.add(rule, problem, where=where, severity="error")
        elif verdict == "not testable":
            self.findings.add(rule, f"not testable: {problem}", where=where, severity="missing")
        elif verdict == "within tolerance":
            self.findings.add(rule, problem, where=where, severity="hint")


def branch_rows(stream: Stream) -> dict[int, Row]:
    """Return the train events on the current branch, all of whole windows, by the microbatches at their end."""
    found = {}
    for segment in stream.history.branch():
        track = stream.track_of(segment.session.number)
        if track is None:
            continue
        for index, microbatches in enumerate(track.rows.microbatches):
            if segment.holds(microbatches) and not track.rows.remainder(index, start=track.start):
                found[microbatches] = Row(track=track, index=index)
    return found


def _is_deterministic(track: Track) -> bool:
    section = None if track.sections is None else track.sections.determinism
    return section is not None and section.deterministic


def _are_close(first: Train, second: Train) -> bool:
    for name in MEASURES:
        one, other = getattr(first, name), getattr(second, name)
        ours, theirs = (one, other) if isinstance(one, dict) else ({name: one}, {name: other})
        if not isinstance(theirs, dict) or ours.keys() != theirs.keys():
            return False
        for key in ours:
            a, b = ours[key], theirs[key]
            if a == b:
                continue
            if not (isinstance(a, float | int) and isinstance(b, float | int)):
                return False
            if not math.isclose(a, b, rel_tol=TOLERANCE):
                return False
    return True
