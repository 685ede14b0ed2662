"""Gates: what is asked of a stage's evidence by default, what a configuration asks instead, and the judgement.

A default can be given other bounds, switched off (null: it is then listed as not gated), or joined by others. What is
measured comes from records alone; a metric that was not measured, or is no finite number, misses every bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from pydantic import AfterValidator, Field, model_validator

from ledger.config import StrictModel, leaf
from ledger.pilot.measure import GateWindow
from ledger.pilot.metrics import METRICS, Evidence, is_metric, metric_named
from ledger.pilot.numbers import Value
from ledger.records.fields import is_finite
from ledger.records.pilot import Gate

__all__ = [
    "DEFAULT_GATES",
    "GateBound",
    "GateBounds",
    "asks_less",
    "gate_notes",
    "gates_of",
    "judge",
    "measure",
]


def _known_metric(name: str) -> str:
    if not is_metric(name):
        raise ValueError(f"{name!r} is no metric; known are {', '.join(METRICS)}, and diagnostics-NAME")
    return name


class GateBound(StrictModel):
    """A bound on evidence; without `min`, `max` and `equal` it asks that the metric was measured and is finite."""

    metric: Annotated[str, AfterValidator(_known_metric)] | None = leaf("identity", None)
    """What is measured; null: what the gate is called."""
    min: float | None = leaf("identity", None)
    """The least value that passes."""
    max: float | None = leaf("identity", None)
    """The greatest value that passes."""
    equal: str | None = leaf("identity", None, max_length=128)
    """The word that passes, such as `bitwise`."""
    window: GateWindow = leaf("identity", "all")
    """Which part of the run: all, last_half or last_third of the branch's train events."""
    reason: str = leaf("volatile", "", max_length=4_096)
    """Why this is asked."""

    @model_validator(mode="after")
    def _is_one_bound(self) -> GateBound:
        if self.equal is not None and (self.min is not None or self.max is not None):
            raise ValueError("a gate asks for a word or for a number, not for both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"nothing lies between min {self.min:g} and max {self.max:g}")
        return self

    @property
    def asked(self) -> str:
        """The bound in words."""
        if self.equal is not None:
            return self.equal
        least = [] if self.min is None else [f">= {self.min:g}"]
        most = [] if self.max is None else [f"<= {self.max:g}"]
        return " and ".join([*least, *most]) or "finite"

    def holds(self, measured: Value) -> bool:
        """Tell whether a measurement keeps the bound."""
        if self.equal is not None:
            return measured == self.equal
        if not is_finite(measured):  # type: ignore[arg-type]
            return False
        number = float(measured)  # type: ignore[arg-type]
        return (self.min is None or number >= self.min) and (self.max is None or number <= self.max)


GateBounds = dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")], GateBound | None]
"""Name of a gate to its bound, over the defaults; null: not gated."""

_FINITE: Final = GateBound(
    metric="nonfinite_count", max=0, reason="a number that is none is lost work, or lost weights"
)
_ENDED: Final = GateBound(equal="completed", reason="it reached its target")
_BITWISE: Final = "an interruption must not change the run"


def _bitwise() -> GateBound:
    return GateBound(equal="bitwise", reason=_BITWISE)


DEFAULT_GATES: Final[dict[str, dict[str, GateBound]]] = {
    "smoke": {
        "ended": _ENDED,
        "updates": GateBound(min=1, reason="it executes at all"),
        "nonfinite_count": _FINITE,
    },
    "overfit": {
        "ended": _ENDED,
        "loss_left": GateBound(
            max=0.5,
            reason="a batch that is seen again and again is learned: half of the loss is a lenient bound",
        ),
        "nonfinite_count": _FINITE,
        "skipped_share": GateBound(max=0.2, reason="an initial loss scale may take a few skips to settle"),
    },
    "acceptance": {
        "ended": _ENDED,
        "checkpoints": GateBound(min=1, reason="nothing can go on without one"),
        "evaluations": GateBound(min=1, reason="evaluation runs inside training"),
        "validation_loss": GateBound(reason="the complete evaluation at the end was made"),
        "nonfinite_count": _FINITE,
        "skipped_share": GateBound(max=0.2, reason="an initial loss scale may take a few skips to settle"),
    },
    "stability": {
        "ended": _ENDED,
        "loss_drop": GateBound(min=0.0, reason="the loss falls"),
        "loss_falls": GateBound(min=0.9, reason="it falls beyond what chance does to single windows"),
        "loss_rise": GateBound(max=1.0, reason="it does not end far above its best"),
        "nonfinite_count": _FINITE,
        "skipped_share": GateBound(max=0.1, reason="skipped data is paid for and not learned from"),
        "late_skips": GateBound(
            metric="skipped_share", window="last_half", max=0.02, reason="a loss scale has settled by then"
        ),
        "late_clipping": GateBound(
            metric="clipped_share", window="last_third", max=0.95, reason="clipping is for exceptions"
        ),
        "repeated_share": GateBound(max=0.0, reason="successive batches, never the same one twice"),
        "spike_share": GateBound(
            max=0.01,
            reason="one may be an odd batch, two chance, a third is the recipe; in a long pilot one in a hundred",
        ),
        "decay_per_update": GateBound(
            max=0.01, reason="what is taken away in an update is far less than what was learned before"
        ),
        "moment_ratio": GateBound(
            max=1.0, reason="Adam is known to converge where beta1 is below the root of beta2"
        ),
        "warmup_share": GateBound(max=0.5, reason="a warm-up ends, and most of the run is behind it"),
        "throughput_ratio": GateBound(
            min=0.5,
            reason="steady between the first and the last third, other users of the machine allowed for",
        ),
        "memory_growth": GateBound(
            max=1.02, reason="what grows all through a pilot fills the machine in a long run"
        ),
        "checkpoint_share": GateBound(max=0.25, reason="a short pilot checkpoints often for its length"),
        "data_wait_share": GateBound(max=0.25, reason="the processor waits for data otherwise"),
        "tokens_per_second": GateBound(reason="the budget of the long run rests on it"),
    },
    "resume": {
        "ended": _ENDED,
        "interruptions": GateBound(min=1, reason="it was really killed"),
        "updates_redone": GateBound(min=1, reason="and not exactly at a checkpoint"),
        "redone_equal": _bitwise(),
        "same_start": _bitwise(),
        "same_data": _bitwise(),
        "same_loss": _bitwise(),
        "same_parameters": _bitwise(),
    },
    "validate": {
        "validation_loss": GateBound(reason="what training never saw was measured completely"),
        "held_out_updates": GateBound(
            min=1.0, reason="a mean over less text than one update reads is chance"
        ),
        "validation_gap": GateBound(
            min=-0.5,
            max=3.0,
            reason="near the training loss, neither far below (a leak) nor far above (other text)",
        ),
        "leaked_share": GateBound(
            max=0.1, reason="held-out text that is trained on measures memory, not learning"
        ),
    },
}
"""Stage to the gates that it has without a word in its configuration."""


def gates_of(stage: str, asked: Mapping[str, GateBound | None] | None = None) -> dict[str, GateBound | None]:
    """Return the gates of a stage: the defaults, with what its configuration asks instead; null: switched off.

    Raises `ValueError` for a gate that names no metric, and for a default that is to measure something else.
    """
    gates: dict[str, GateBound | None] = {**DEFAULT_GATES.get(stage, {})}
    for name, bound in (asked or {}).items():
        before = gates.get(name)
        if bound is not None and bound.metric is None and before is not None and before.metric is not None:
            bound = bound.model_copy(update={"metric": before.metric})  # noqa: PLW2901 - the name of a default
        if before is not None and bound is not None and bound.metric not in (None, before.metric or name):
            raise ValueError(
                f"the gate {name} measures {before.metric or name}; ask more under a name of its own"
            )
        if before is None and (bound is None or bound.metric is None):
            _known_metric(name)
        gates[name] = bound
    return gates


def asks_less(stage: str, gate: Gate) -> bool:
    """Tell whether a gate lets something pass that each default gate of its metric and window would refuse."""
    window = gate.window or "all"
    defaults = [
        bound
        for name, bound in DEFAULT_GATES.get(stage, {}).items()
        if (bound.metric or name, bound.window) == (gate.metric, window)
    ]
    return gate.gated and bool(defaults) and all(_is_wider(gate, bound) for bound in defaults)


def _is_wider(gate: Gate, bound: GateBound) -> bool:
    if bound.equal is not None:
        return gate.equal != bound.equal
    least = bound.min is not None and (gate.min is None or gate.min < bound.min)
    most = bound.max is not None and (gate.max is None or gate.max > bound.max)
    return least or most


def judge(stage: str, asked: Mapping[str, GateBound | None] | None, evidence: Evidence) -> list[Gate]:
    """Measure every gate of a stage and say whether its bound is kept; in the order of `gates_of`."""
    return list(_judged(stage, gates_of(stage, asked), evidence))


def _judged(stage: str, bounds: Mapping[str, GateBound | None], evidence: Evidence) -> Iterator[Gate]:
    for name, bound in bounds.items():
        default = DEFAULT_GATES.get(stage, {}).get(name)
        given = bound or default or GateBound()
        metric = given.metric or name
        measured = measure(metric, given.window, evidence)
        yield Gate(
            metric=metric,
            asked="not gated" if bound is None else bound.asked,
            min=None if bound is None else bound.min,
            max=None if bound is None else bound.max,
            equal=None if bound is None else bound.equal,
            window=None if given.window == "all" else given.window,
            measured=measured,
            passed=bound is None or bound.holds(measured),
            gated=bound is not None,
            reason="switched off in the configuration" if bound is None else bound.reason,
        )


def measure(name: str, window: GateWindow, evidence: Evidence) -> Value:
    """Return what a stage's evidence shows of a metric; None where it shows nothing, or there is no such metric."""
    others = evidence.others or {}
    if name in others:
        return others[name]
    if not is_metric(name):
        return None
    metric = metric_named(name)
    if metric.of_run is not None and evidence.run is not None:
        return metric.of_run(evidence.run, window)
    if metric.of_verdict is not None and evidence.verdict is not None:
        return metric.of_verdict(evidence.verdict)
    return None


def gate_notes(stage: str, gates: list[Gate]) -> Iterator[str]:
    """Yield what is to be said of a stage's gates: LG901 for each that missed its bound, LG902 where none is asked."""
    unmeasured = [_spell(gate) for gate in gates if not gate.passed and gate.measured is None]
    for gate in gates:
        if not gate.passed and gate.measured is not None:
            advice = metric_named(gate.metric).advice
            yield f"LG901 error: {stage}: {_spell(gate)} is {_shown(gate.measured)}, asked {gate.asked} ({advice})"
    if unmeasured:
        yield (
            f"LG901 error: {stage}: not measured: {', '.join(unmeasured)} (the run was too short, "
            "ended too early, or its recipe does not record it)"
        )
    off = [_spell(gate) for gate in gates if not gate.gated]
    if not any(gate.gated for gate in gates):
        yield f"LG902 warning: {stage}: nothing is asked of what was measured"
    elif off:
        yield f"LG902 warning: {stage}: not gated, on purpose: {', '.join(off)}"


def _spell(gate: Gate) -> str:
    window = "" if gate.window is None else f" ({gate.window.replace('_', ' ')})"
    return gate.metric.replace("_", " ") + window


def _shown(measured: Value) -> str:
    return f"{measured:.6g}" if isinstance(measured, int | float) else str(measured)
