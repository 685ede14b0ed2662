"""LG209: the loss scale, replayed along the branch from the recipe's law."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from ledger.audit.lineage import resolve_parent, starts_from_beginning
from ledger.audit.stream import Checker, Stream
from ledger.laws.scaler import LossScale, ScalerLaw, parse_scaler_law
from ledger.records.events import AnyEvent, Checkpoint, Overflow, SessionStart, Train, UnknownEvent
from ledger.records.fields import Json, Measurement

__all__ = ["ScalerChecker"]

UNSCALED: Final = frozenset({"fp32", "bf16"})
"""Number formats that need no loss scale."""


@dataclass(kw_only=True)
class _Trail:
    """Where the law stood at each train and overflow event of a session, 24 bytes an event."""

    seq: array[int] = field(default_factory=lambda: array("Q"))
    scale: array[float] = field(default_factory=lambda: array("d"))
    tracker: array[int] = field(default_factory=lambda: array("Q"))
    start: LossScale | None = None

    def add(self, seq: int, state: LossScale) -> None:
        """Remember where the law stands at an event."""
        self.seq.append(seq)
        self.scale.append(state.scale)
        self.tracker.append(state.growth_tracker)

    def at(self, seq: int) -> LossScale | None:
        """Return where it stood behind the event `seq`; None where the log does not say."""
        row = bisect_right(self.seq, seq) - 1
        if row < 0:
            return self.start
        return LossScale(scale=self.scale[row], growth_tracker=self.tracker[row])


class ScalerChecker(Checker):
    """LG209: scale and growth tracker on every line and in every checkpoint."""

    rules: ClassVar[tuple[str, ...]] = ("LG209",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._law: ScalerLaw | None = None
        self._state: LossScale | None = None
        """Where the law stands; None where the log has not said yet."""
        self._step = 0
        self._has_none = False
        """The recipe's number format has no loss scale."""
        self._trails: dict[int, _Trail] = {}
        self._expected: list[tuple[Checkpoint, LossScale]] = []

    def on_session_start(self, event: SessionStart) -> None:
        """Take the law from the session's own recipe, and the state from where it starts."""
        self._law, self._step = self._law_of(event), event.step
        self._state = None if self._law is None else self._state_at_start(event, self._law)
        if self._law is not None:
            self._trails[event.session] = _Trail(start=self._state)

    def _law_of(self, event: SessionStart) -> ScalerLaw | None:
        sections = None if self.stream.track is None else self.stream.track.sections
        precision = None if sections is None else sections.precision
        name = None if precision is None else precision.get("name")
        self._has_none = name in UNSCALED
        if precision is None or self._has_none:
            reason = "no number format" if precision is None else f"{name}, which needs no loss scale"
            self.findings.exempt("LG209", f"the recipe states {reason}")
            return None
        try:
            law = parse_scaler_law(precision)
        except ValueError as error:
            self.findings.skip(
                "LG209", f"the loss scale of session {event.session} cannot be followed: {error}"
            )
            return None
        if law is None:
            self.findings.skip("LG209", f"the number format {name!r} is not known here")
        return law

    def _state_at_start(self, event: SessionStart, law: ScalerLaw) -> LossScale | None:
        if not starts_from_beginning(self.stream, event):
            parent = resolve_parent(self.stream, event)
            trail = None if parent is None else self._trails.get(parent.session)
            return None if parent is None or trail is None else trail.at(parent.seq)
        facts = self.stream.history.facts
        run_parent = None if facts is None else facts.parent
        continues = run_parent is not None and run_parent.mode == "continue"
        return None if continues else law.initial

    def on_train(self, event: Train) -> None:
        """Compare what stands after the last attempt."""
        if self._law is None and event.loss_scale is None:
            return
        self._follow(event)
        self._compare(event, "loss_scale", event.loss_scale, event.growth_tracker)

    def on_overflow(self, event: Overflow) -> None:
        """Compare the scale before and after a skipped attempt."""
        self._follow(event)
        stated = event.loss_scale
        self._compare(event, "loss_scale before", None if stated is None else stated.before, None)
        if self._law is None:
            return
        if self._state is not None and event.reason == "overflow":
            self._state = self._law.after_overflow(self._state)
        after = None if stated is None else stated.after
        self._compare(event, "loss_scale after", after, event.growth_tracker)

    def on_checkpoint(self, event: Checkpoint) -> None:
        """Remember what the checkpoint must hold."""
        trail = self._trails.get(event.session)
        state = None if trail is None else trail.at(event.at.seq)
        if state is not None:
            self._expected.append((event, state))

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Behind a damaged place the next stated scale is the new beginning."""
        if self.stream.previous is None and not isinstance(event, SessionStart | Overflow):
            self._state = None

    def _follow(self, event: Train | Overflow) -> None:
        updates, self._step = event.step - self._step, event.step
        if self.stream.previous is None or updates < 0:
            self._state = None  # LG101 to LG103, LG206
        if self._law is not None and self._state is not None:
            self._state = self._law.after_updates(self._state, updates=updates)

    def _compare(
        self, event: Train | Overflow, what: str, scale: Measurement | None, tracker: int | None
    ) -> None:
        """Compare a stated scale, and with it the tracker where the line states one, with the law's."""
        if self._law is None:
            if self._has_none and scale is not None:
                self._report(f"{what} is {scale}, but the recipe's number format has none")
            return
        is_after = what != "loss_scale before"
        if scale is None or (is_after and tracker is None):
            self._report(f"{what} or growth_tracker is null, but the recipe scales the loss")
            return
        if self._state is None:
            if isinstance(scale, str) or tracker is None:
                return
            self._state = LossScale(scale=float(scale), growth_tracker=tracker)
        expected = self._state
        if scale != expected.scale or (is_after and tracker != expected.growth_tracker):
            found = f"{what} is {scale}" + (f" with growth_tracker {tracker}" if is_after else "")
            self._report(f"{found}, but the recipe's law gives {_spell(expected)}")
            if not isinstance(scale, str) and tracker is not None:  # one wrong number is found once
                self._state = LossScale(scale=float(scale), growth_tracker=tracker)
        if is_after and self._state is not None:
            self._trails[event.session].add(event.seq, self._state)

    def _report(self, message: str) -> None:
        self.findings.add("LG209", message, where=self.stream.where)

    def finish(self) -> None:
        """Compare what the checkpoints hold."""
        for event, expected in self._expected:
            folder = self.stream.files.checkpoints.get(event.path)
            trainer = None if folder is None else self.stream.files.trainer_state(folder).document
            if trainer is None:
                continue  # LG401 to LG403 say why, or it was pruned
            found = _stored(trainer.scaler)
            if found is None:
                self.findings.skip(
                    "LG209 checkpoints", "trainer.json holds the scaler in a form not known here"
                )
            elif found != expected:
                self.findings.add(
                    "LG209",
                    f"holds the scaler at {_spell(found)}, but the recipe's law gives {_spell(expected)}",
                    where=event.path,
                )


def _stored(scaler: Json) -> LossScale | None:
    """Return the scaler that trainer.json holds, in our form or in that of torch's state_dict."""
    if not isinstance(scaler, Mapping):
        return None
    scale, tracker = scaler.get("scale"), scaler.get("growth_tracker", scaler.get("_growth_tracker"))
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not isinstance(tracker, int):
        return None
    return LossScale(scale=float(scale), growth_tracker=tracker)


def _spell(state: LossScale) -> str:
    return f"{state.scale} with growth_tracker {state.growth_tracker}"
