"""LG207, LG208, LG214, LG215: what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import ClassVar, Final

from ledger.audit.causes import cause_of_rate
from ledger.audit.stream import Checker, Stream
from ledger.laws.schedules import Schedule, learning_rate, parse_schedule
from ledger.records.events import AnyEvent, Checkpoint, SessionStart, Train, UnknownEvent, Validation
from ledger.records.fields import Measurement, is_finite
from ledger.records.sections import OptimizerSection

__all__ = ["EvaluationChecker", "FiniteChecker", "LossTokenChecker", "RateChecker"]

RATE_TOLERANCE: Final = 1e-12
MEAN_TOLERANCE: Final = 1e-6

MEASURED: Final = ("loss", "loss_last", "grad_norm", "grad_norm_max", "lr")
"""What a train event says of applied updates alone."""


class FiniteChecker(Checker):
    """LG207: applied updates and complete evaluations are finite."""

    rules: ClassVar[tuple[str, ...]] = ("LG207",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._broken_since: int | None = None
        """seq of the train event whose last applied update was non-finite; None once a finite one followed."""

    def on_session_start(self, event: SessionStart) -> None:
        """A session starts from a checkpoint, which is judged where it was taken."""
        self._broken_since = None
        del event

    def on_train(self, event: Train) -> None:
        """Check what was measured of applied updates."""
        if _is_plain(event):
            self._broken_since = None
            return
        self._check_presence(event)
        self._check_norms(event)
        self._check_mean(event)
        self._check_finite(event)
        if event.window.updates:
            is_broken = isinstance(event.loss_last, str) or isinstance(event.grad_norm, str)
            self._broken_since = event.seq if is_broken else None

    def _check_presence(self, event: Train) -> None:
        """Measurements are null if and only if no update was applied."""
        has_updates = event.window.updates > 0
        measured = (event.loss, event.loss_last, event.grad_norm, event.grad_norm_max, event.lr)
        if measured.count(None) == (0 if has_updates else len(measured)):
            return
        for name in MEASURED:
            if (getattr(event, name) is not None) != has_updates:
                problem = f"is null, yet {event.window.updates} updates were applied"
                if not has_updates:
                    problem = "was measured, yet no update was applied"
                self.findings.add("LG207", f"{name} {problem}", where=self.stream.where)

    def _check_norms(self, event: Train) -> None:
        """A norm is not negative, and the greatest is not less than the last."""
        last, greatest = event.grad_norm, event.grad_norm_max
        if not isinstance(last, int | float) or not isinstance(greatest, int | float):
            return
        if last < 0 or last > greatest:
            problem = f"grad_norm is {last}, the greatest {greatest}"
        elif event.window.updates == 1 and last != greatest:
            problem = f"grad_norm is {last}, yet the greatest of this one update is {greatest}"
        else:
            return
        self.findings.add("LG207", problem, where=self.stream.where)

    def _check_mean(self, event: Train) -> None:
        """The mean loss of a single update is that update's."""
        mean, last = event.loss, event.loss_last
        if (
            event.window.updates != 1
            or not isinstance(mean, int | float)
            or not isinstance(last, int | float)
        ):
            return
        if mean == last or math.isclose(mean, last, rel_tol=MEAN_TOLERANCE):
            return  # a mean by weights need not give the very number
        self.findings.add(
            "LG207",
            f"loss is {mean}, yet that of the window's only update is {last}",
            where=self.stream.where,
            evidence={"loss": mean, "loss_last": last},
        )

    def _check_finite(self, event: Train) -> None:
        """Nothing that was measured is non-finite."""
        for name, value in _measures(event).items():
            if isinstance(value, str):
                self.findings.add(
                    "LG207", f"{name} is {value}, yet the update was applied", where=self.stream.where
                )

    def on_checkpoint(self, event: Checkpoint) -> None:
        """Check that no checkpoint captures a state that a non-finite update made."""
        if self._broken_since is not None and self._broken_since <= event.at.seq:
            self.findings.add(
                "LG207",
                f"{event.path} captured a state whose last applied update was non-finite (seq "
                f"{self._broken_since})",
                where=self.stream.where,
            )

    def on_val(self, event: Validation) -> None:
        """Check a complete evaluation."""
        if event.complete and not is_finite(event.loss):
            self.findings.add(
                "LG207",
                f"a complete evaluation of {event.split} has loss {event.loss}",
                where=self.stream.where,
            )


def _is_plain(event: Train) -> bool:
    """Tell at a glance, as nearly every line of the log allows, that nothing needs a closer look."""
    mean, last, norm, greatest = event.loss, event.loss_last, event.grad_norm, event.grad_norm_max
    updates, rates = event.window.updates, event.lr
    return (
        isinstance(mean, float)
        and isinstance(last, float)
        and isinstance(norm, float)
        and isinstance(greatest, float)
        and (
            mean == last and 0 <= norm == greatest if updates == 1 else updates > 1 and 0 <= norm <= greatest
        )
        and rates is not None
        and not any(isinstance(rate, str) for rate in rates.values())
    )


def _measures(event: Train) -> dict[str, Measurement | None]:
    """Return what was measured of applied updates, by name; a non-finite one is a text."""
    return {
        "loss": event.loss,
        "loss_last": event.loss_last,
        "grad_norm": event.grad_norm,
        "grad_norm_max": event.grad_norm_max,
    } | {f"lr of {group}": rate for group, rate in (event.lr or {}).items()}


class RateChecker(Checker):
    """LG208: every group's rate is the schedule's."""

    rules: ClassVar[tuple[str, ...]] = ("LG208",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._schedule: Schedule | None = None
        self._optimizer: OptimizerSection | None = None
        self._groups: frozenset[str] = frozenset()
        """The optimizer's groups as the run states them; empty where it states none."""

    def on_session_start(self, event: SessionStart) -> None:
        """Take the schedule from the session's own recipe."""
        self._schedule = None
        facts = self.stream.history.facts
        self._groups = (
            frozenset(group.name for group in facts.optimizer) if facts is not None else frozenset()
        )
        sections = None if self.stream.track is None else self.stream.track.sections
        if sections is None or sections.schedule is None or sections.optimizer is None:
            self.findings.skip(
                "LG208", f"the recipe of session {event.session} states no schedule and base rate"
            )
            return
        self._optimizer = sections.optimizer
        try:
            self._schedule = parse_schedule(sections.schedule)
        except ValueError as error:
            self.findings.skip(
                "LG208", f"the schedule of session {event.session} cannot be followed: {error}"
            )
            return
        if self._schedule is None:
            name = sections.schedule.get("name")
            self.findings.skip("LG208", f"the schedule {name!r} is not known here")

    def on_train(self, event: Train) -> None:
        """Compare the rates of the last applied update."""
        if event.lr is not None and (not self._groups or self._groups != event.lr.keys()):
            self._check_groups(event.lr)
        track = self.stream.track
        schedule, optimizer = self._schedule, self._optimizer
        if track is None or schedule is None or optimizer is None or event.lr is None or event.step < 1:
            return
        rule = (schedule, track.tokens_per_update)
        for group, rate in event.lr.items():
            base = optimizer.base_rate(group)
            expected = _rate_at(event.step, rule, base)
            if rate == expected or isinstance(rate, str):
                continue
            if not math.isclose(rate, expected, rel_tol=RATE_TOLERANCE, abs_tol=0.0):
                at = partial(_rate_at, rule=rule, base=base)
                cause = cause_of_rate(rate, at=at, train=event, began_at=track.start.step)
                self.findings.add(
                    "LG208",
                    f"the rate of {group} is {rate}, but the schedule gives {expected} at step {event.step}{cause}",
                    where=self.stream.where,
                    evidence={"found": rate, "expected": expected},
                )

    def _check_groups(self, rates: Mapping[str, Measurement]) -> None:
        """Compare the groups with the optimizer's partition, where the run states one; LG207 judges an absent map."""
        groups = self._groups
        if groups or not rates:
            self.findings.add(
                "LG208",
                f"rates are stated of {_names(rates)}, but the optimizer's groups are {_names(groups)}",
                where=self.stream.where,
            )


def _rate_at(step: int, rule: tuple[Schedule, int], base: float) -> float:
    """Return the rate at a step by a schedule over so many tokens an update."""
    return learning_rate(rule[0], step=step, tokens_per_update=rule[1], base=base)


def _names(groups: Iterable[str]) -> str:
    return ", ".join(sorted(groups)) or "no group"


class EvaluationChecker(Checker):
    """LG214: evaluation leaves no trace in the random generators."""

    rules: ClassVar[tuple[str, ...]] = ("LG214",)

    def on_val(self, event: Validation) -> None:
        """Compare the digests before and after."""
        if event.rng_before != event.rng_after:
            self.findings.add(
                "LG214",
                f"the evaluation of {event.split} moved the random generators: what follows depends on how "
                "often evaluation runs",
                where=self.stream.where,
                evidence={"before": event.rng_before, "after": event.rng_after},
            )


class LossTokenChecker(Checker):
    """LG215: loss tokens and clipping."""

    rules: ClassVar[tuple[str, ...]] = ("LG215",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._optimizer: OptimizerSection | None = None

    def on_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Compare loss tokens with tokens seen."""
        before, track = self.stream.previous, self.stream.track
        if track is None:
            return
        before = before or track.start
        lost, seen = event.loss_tokens - before.loss_tokens, event.tokens_seen - before.tokens_seen
        if lost == seen:
            return
        if lost > seen:
            problem = f"loss_tokens moved by {lost}, more than the {seen} tokens seen"
        elif track.masks is False:
            problem = f"loss_tokens moved by {lost} and tokens_seen by {seen}, but the recipe masks nothing"
        else:
            return
        self.findings.add(
            "LG215", problem, where=self.stream.where, evidence={"loss tokens": lost, "tokens": seen}
        )

    def on_session_start(self, event: SessionStart) -> None:
        """Take the limit from the recipe, and say where equality of the two counts cannot be expected."""
        track = self.stream.track
        sections = None if track is None else track.sections
        self._optimizer = None if sections is None else sections.optimizer
        if track is not None and track.masks is None:
            self.findings.skip(
                "LG215 equality",
                f"the recipe of session {event.session} does not say whether it masks positions",
            )

    def on_train(self, event: Train) -> None:
        """Check clipping."""
        if event.clipped > event.window.updates:
            self.findings.add(
                "LG215",
                f"clipped is {event.clipped} of {event.window.updates} updates",
                where=self.stream.where,
            )
        if self._optimizer is None:
            return
        limit, greatest = self._optimizer.clip_norm, event.grad_norm_max
        if greatest == "NaN":
            return  # comparisons with it say nothing; LG207 has it
        exceeds = limit is not None and greatest is not None and float(greatest) > limit
        if exceeds != (event.clipped > 0):
            self.findings.add(
                "LG215",
                f"clipped is {event.clipped}, but the greatest norm is {greatest} against a limit of {limit}",
                where=self.stream.where,
                evidence={"clipped": event.clipped, "greatest": greatest, "limit": limit},
            )
