"""The numbers that gates ask for, each from the measurements of a run or from its verdict.

A number that rests on a measurement which is not finite is not finite itself; what the records do not show is None.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias

from ledger.pilot.measure import GateWindow, RunMeasurements, TrainRow
from ledger.records.documents import Verdict
from ledger.records.fields import Measurement, as_measurement, is_finite

__all__ = [
    "SPIKES_BY_CHANCE",
    "SPIKE_FACTOR",
    "SPIKE_MEMORY",
    "Measure",
    "Value",
    "best_loss",
    "checkpoint_seconds",
    "checkpoint_share",
    "clipped_share",
    "data_wait_share",
    "diagnostic",
    "ended",
    "equivalence",
    "evaluation_share",
    "held_out_updates",
    "loss_drop",
    "loss_falls",
    "loss_left",
    "loss_rise",
    "memory_growth",
    "nonfinite_count",
    "norm_at",
    "norm_spikes",
    "peak_memory",
    "redone_equal",
    "repeated_share",
    "skipped_share",
    "spike_share",
    "throughput_ratio",
    "training_rate",
    "validation_gap",
    "validation_loss",
    "wall_rate",
]

Value: TypeAlias = Measurement | str | None
Measure: TypeAlias = Callable[[RunMeasurements, GateWindow], Value]

ENDED_LENGTH: Final = 300
"""Characters of an end's reason that are kept."""
SPIKE_FACTOR: Final = 4.0
"""A norm is a spike where it exceeds so many times the median of the windows before it."""
SPIKE_MEMORY: Final = 16
"""Windows whose median a norm is compared with."""
SPIKES_BY_CHANCE: Final = 2
"""One may be an odd batch, two chance; what is beyond is the recipe, in a run of any length."""
SPIKE_LEAST: Final = 4
"""Windows that must have gone before."""


def ended(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return how the last session ended, and why where it did not complete."""
    sessions = found.history.sessions
    end = sessions[-1].end if sessions else None
    if end is None:
        return None
    why = end.error or end.reason
    return end.status if end.status == "completed" else f"{end.status}: {why}"[:ENDED_LENGTH]


def best_loss(found: RunMeasurements, window: GateWindow) -> Value:
    """Return the least loss of a train event, in nats."""
    return _least(found.losses(window))


def loss_rise(found: RunMeasurements, window: GateWindow) -> Value:
    """Return the loss of the last train event minus the least, in nats."""
    losses = found.losses(window)
    return _combined([losses[-1], _least(losses)], lambda pair: pair[0] - pair[1]) if losses else None


def loss_left(found: RunMeasurements, window: GateWindow) -> Value:
    """Return the loss of the last train event over that of the first."""
    losses = found.losses(window)
    if len(losses) < 2 or losses[0] == 0:
        return None
    return _combined([losses[0], losses[-1]], lambda pair: pair[1] / pair[0])


def loss_falls(found: RunMeasurements, _window: GateWindow) -> Value:
    """Share of the pairs of an early and a late window in which the late one has the lower loss (Mann-Whitney)."""
    thirds = found.finite_thirds()
    if thirds is None:
        return None if all(map(is_finite, found.losses())) else "NaN"
    first, last = sorted(thirds[0]), thirds[1]
    lower = sum(len(first) - bisect_left(first, late) - 0.5 * first.count(late) for late in last)
    return lower / (len(first) * len(last))


def loss_drop(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return the mean loss of the first third of the train events minus that of the last third, in nats."""
    drop = found.loss_drop()
    return drop if drop is not None or all(map(is_finite, found.losses())) else "NaN"


def nonfinite_count(found: RunMeasurements, _window: GateWindow) -> Value:
    """Losses and norms that are not finite, and attempts refused for one; an overflow of a scaled loss is none."""
    refused = found.skips.get("nonfinite_loss", 0) + found.skips.get("nonfinite_grad", 0)
    measured = [value for row in found.rows for value in (row.loss, row.grad_norm)]
    measured += [one.loss for session in found.history.sessions for one in session.evaluations]
    return refused + sum(1 for value in measured if value is not None and not is_finite(value))


def repeated_share(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return the share of the branch's microbatches whose bytes an earlier one held."""
    branch = found.history.branch()
    if not branch or not found.batches:
        return None
    digests = [digest for number, digest in found.batches.items() if number < branch[-1].end.microbatches]
    return 1 - len(set(digests)) / len(digests) if digests else None


def skipped_share(found: RunMeasurements, window: GateWindow) -> Value:
    """Return skipped attempts over attempts; of the whole run those of superseded work count, too."""
    if window == "all":
        spent = found.history.spent()
        return spent.skipped / spent.attempts if spent.attempts else None
    rows = found.branch_rows(window)
    attempts = sum(row.attempts for row in rows)
    return sum(row.skipped for row in rows) / attempts if attempts else None


def clipped_share(found: RunMeasurements, window: GateWindow) -> Value:
    """Return clipped updates over updates."""
    rows = found.branch_rows(window)
    updates = sum(row.updates for row in rows)
    return sum(row.clipped for row in rows) / updates if updates else None


def norm_at(quantile: float) -> Measure:
    """Return the measure of a quantile of the windows' greatest norms."""

    def measure(found: RunMeasurements, window: GateWindow) -> Value:
        return _combined(_norms(found.branch_rows(window)), lambda norms: _quantile(norms, quantile))

    return measure


def norm_spikes(found: RunMeasurements, window: GateWindow) -> Value:
    """Stretches of windows whose greatest norm exceeds SPIKE_FACTOR times the median of those before."""
    norms = _norms(found.branch_rows("all"))
    if len(norms) <= SPIKE_LEAST:
        return None
    begin = len(norms) - len(_norms(found.branch_rows(window)))
    return _combined(norms, lambda numbers: float(_spikes(numbers, begin=begin)))


def spike_share(found: RunMeasurements, window: GateWindow) -> Value:
    """Return the spikes of the norm beyond SPIKES_BY_CHANCE over the windows that were looked at."""
    spikes = norm_spikes(found, window)
    if not isinstance(spikes, int | float):
        return spikes
    looked_at = len(_norms(found.branch_rows(window)))
    return max(0.0, spikes - SPIKES_BY_CHANCE) / looked_at if looked_at else None


def _spikes(norms: list[float], *, begin: int) -> int:
    calm: list[float] = norms[:SPIKE_LEAST]
    count, was_spike = 0, False
    for index, norm in enumerate(norms[SPIKE_LEAST:], start=SPIKE_LEAST):
        is_spike = norm > SPIKE_FACTOR * median(calm[-SPIKE_MEMORY:])
        if is_spike and not was_spike and index >= begin:
            count += 1
        if not is_spike:
            calm.append(norm)
        was_spike = is_spike
    return count


def validation_loss(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return the loss of the last complete evaluation, in nats."""
    return found.complete_loss


def held_out_updates(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return the target positions of the last complete evaluation over those of one update."""
    complete = [one.tokens for one in found.history.evaluations() if one.complete]
    attempts, tokens = sum(row.attempts for row in found.rows), sum(row.tokens for row in found.rows)
    return complete[-1] * attempts / tokens if complete and tokens else None


def validation_gap(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return the loss of the last complete evaluation minus the mean training loss of the last third, in nats."""
    late = found.losses("last_third")
    if found.complete_loss is None or not late:
        return None
    return _combined([found.complete_loss, *late], lambda all_: all_[0] - sum(all_[1:]) / (len(all_) - 1))


def training_rate(found: RunMeasurements, window: GateWindow) -> Value:
    """Return tokens a second while training."""
    rows = found.branch_rows(window)
    return _ratio(sum(row.tokens for row in rows), sum(row.seconds for row in rows))


def wall_rate(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return tokens a second of wall clock, superseded work included."""
    return _ratio(found.history.spent().tokens_seen, found.elapsed_seconds)


def throughput_ratio(found: RunMeasurements, _window: GateWindow) -> Value:
    """Median rate of the windows of the last third over that of the first third."""
    rates = [row.tokens / row.seconds for row in found.branch_rows() if row.seconds > 0 and row.tokens]
    third = len(rates) // 3
    return median(rates[-third:]) / median(rates[:third]) if third else None


def peak_memory(found: RunMeasurements, window: GateWindow) -> Value:
    """Return the greatest memory that was recorded, in bytes."""
    return _greatest(value for row in found.branch_rows(window) for value in row.memory.values())


def memory_growth(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return by how much memory grew from third to third of a session, the lesser of the last two; the worst session.

    What is allocated once (a first evaluation, a first checkpoint) grows in one of them, what leaks in both.
    """
    series: dict[tuple[int, str], list[Measurement]] = {}
    for row in found.branch_rows():
        for name, value in row.memory.items():
            series.setdefault((row.session, name), []).append(value)
    return _greatest(
        growth
        for values in series.values()
        if len(values) >= 3 and (growth := _combined(values, _sustained_growth)) is not None
    )


def _sustained_growth(values: list[float]) -> float:
    marks = [values[len(values) // 3], values[2 * len(values) // 3], values[-1]]
    return min(after / before if before else 1.0 for before, after in pairwise(marks))


def checkpoint_seconds(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return the longest time for which a checkpoint blocked training."""
    return found.longest_checkpoint


def checkpoint_share(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return the share of the wall clock for which checkpoints blocked training; None without one."""
    return _ratio(found.checkpoint_seconds, found.elapsed_seconds) if found.checkpoint_count else None


def evaluation_share(found: RunMeasurements, _window: GateWindow) -> Value:
    """Return the share of the wall clock that evaluations took."""
    return _ratio(found.evaluation_seconds, found.elapsed_seconds)


def data_wait_share(found: RunMeasurements, window: GateWindow) -> Value:
    """Return waiting for data over waiting and training."""
    rows = found.branch_rows(window)
    waited = sum(row.data_seconds for row in rows)
    return _ratio(waited, waited + sum(row.seconds for row in rows))


def redone_equal(verdict: Verdict) -> Value:
    """`bitwise` where work was done twice and agrees, `differs` where it does not; None where nothing was compared."""
    if any(found.rule == "LG306" for found in verdict.findings):
        return "differs"
    return "bitwise" if verdict.account.get("redone_places_compared") else None


def equivalence(rule: str) -> Callable[[Verdict], Value]:
    """Return the measure of what a rule of LG8 found."""

    def measure(verdict: Verdict) -> Value:
        found = verdict.account.get("equivalence")
        compared = found if isinstance(found, dict) else {}
        return str(compared[rule]) if rule in compared else None

    return measure


def diagnostic(name: str) -> Measure:
    """Return the measure of a diagnostic: its greatest value."""

    def measure(found: RunMeasurements, window: GateWindow) -> Value:
        rows = found.branch_rows(window)
        return _greatest(row.diagnostics[name] for row in rows if name in row.diagnostics)

    return measure


def _norms(rows: Iterable[TrainRow]) -> list[Measurement]:
    return [row.grad_norm for row in rows if row.grad_norm is not None]


def _quantile(values: list[float], quantile: float) -> float:
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))]


def _combined(
    values: Iterable[Measurement | None], combine: Callable[[list[float]], float]
) -> Measurement | None:
    given = [value for value in values if value is not None]
    if not given:
        return None
    if not all(map(is_finite, given)):
        return "NaN"
    return as_measurement(combine([float(value) for value in given]))


def _least(values: Iterable[Measurement]) -> Measurement | None:
    return _combined(values, min)


def _greatest(values: Iterable[Measurement]) -> Measurement | None:
    return _combined(values, max)


def _ratio(amount: float, of: float) -> float | None:
    return amount / of if of > 0 else None
