"""Which curves a report of a run shows, and in which words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.audit.charts import Measured, RateLaw, RunCharts
from ledger.report.chart import Chart, Curve, Place, curve_of
from ledger.report.harmless import SHORT, clipped
from ledger.report.lines import number

__all__ = ["charts_of", "loss_chart", "norm_chart"]

SCHEDULE_POINTS: Final = 300


def charts_of(charts: RunCharts) -> Iterator[Chart]:
    """Yield the charts of a run."""
    yield loss_chart(charts)
    yield norm_chart(charts)
    yield _rate_chart(charts)
    if charts.skip_reasons:
        yield Chart(
            title="Skipped attempts",
            unit="attempts skipped so far",
            curves=[curve_of(charts.skipped)],
            last_step=charts.last_step,
            from_zero=True,
        )
    if charts.loss_scale.count:
        yield Chart(
            title="Loss scale",
            unit="scale after the last attempt",
            curves=[curve_of(charts.loss_scale)],
            last_step=charts.last_step,
        )
    yield Chart(
        title="Throughput",
        unit="tokens a second",
        note="Training only counts the seconds of training; wall clock everything since the event before.",
        curves=[curve_of(charts.training_rate), curve_of(charts.wall_rate, style=1)],
        last_step=charts.last_step,
        from_zero=not _is_wild(charts.training_rate, charts.wall_rate),
    )
    if charts.memory:
        yield Chart(
            title="Memory",
            unit="as the records state it, by name",
            note=_left_out(charts, "memory"),
            curves=[curve_of(measured, style=index) for index, measured in enumerate(charts.memory)],
            last_step=charts.last_step,
            from_zero=True,
        )


def loss_chart(charts: RunCharts, *, level: int = 3) -> Chart:
    """Return training loss as a line and evaluations as dots."""
    evaluations = [
        curve_of(
            measured,
            style=1 + index,
            is_dots=True,
            label=f"{clipped(measured.name, longest=SHORT)} (evaluated)",
        )
        for index, measured in enumerate(charts.evaluations)
    ]
    return Chart(
        title="Loss",
        unit="nats, mean of each window,",
        note=_left_out(charts, "evaluation"),
        curves=[curve_of(charts.loss, label="training"), *evaluations],
        last_step=charts.last_step,
        level=level,
    )


def norm_chart(charts: RunCharts, *, level: int = 3) -> Chart:
    """Return the gradient norm and, where it clips, the limit."""
    curves = [curve_of(charts.grad_norm)]
    if charts.clip_norm is not None and charts.last_step:
        limit = [(0.0, charts.clip_norm), (float(charts.last_step), charts.clip_norm)]
        label = f"clipping above {number(charts.clip_norm)}"
        curves.append(Curve(label=label, lines=[limit], style=1))
    return Chart(
        title="Gradient norm",
        unit="greatest of each window before clipping,",
        curves=curves,
        last_step=charts.last_step,
        level=level,
    )


def _rate_chart(charts: RunCharts) -> Chart:
    curves = [
        curve_of(measured, style=0 if index == 0 else index + 1)
        for index, measured in enumerate(charts.rates)
    ]
    notes = [_left_out(charts, "learning rate")]
    law, last = charts.law, max(charts.last_step, charts.target_step or 0)
    if law is None:
        notes.append("The recipe states no schedule that is known here.")
    else:
        for measured in charts.rates:
            places = _scheduled(law, measured.name, last)
            label = (
                "schedule"
                if len(charts.rates) == 1
                else f"schedule of {clipped(measured.name, longest=SHORT)}"
            )
            curves.append(Curve(label=label, lines=[places], style=1))
        notes.append(_agreement(charts))
    return Chart(
        title="Learning rate",
        unit="of each group",
        note=" ".join(note for note in notes if note),
        curves=curves,
        last_step=last if law is not None else charts.last_step,
        from_zero=True,
    )


def _scheduled(law: RateLaw, group: str, last: int) -> list[Place]:
    """Return the schedule from the first update to the last, in so many points, and the end of its warm-up."""
    stride = max(1, last // SCHEDULE_POINTS)
    steps = {*range(1, last + 1, stride), last, min(last, max(1, law.schedule.warmup_steps))} - {0}
    return [(float(step), law.rate(group, step)) for step in sorted(steps)]


def _agreement(charts: RunCharts) -> str:
    verdict = charts.verdict
    if any(found.rule == "LG208" for found in verdict.findings):
        return "The recorded rates are not the schedule's: see LG208."
    if "LG208" in verdict.checked:
        return "Every recorded rate is the schedule's (LG208)."
    return "Whether every rate is the schedule's was not checked (LG208)."


def _left_out(charts: RunCharts, kind: str) -> str:
    names = [name for name in charts.left_out if name.startswith(kind)]
    shown = ", ".join(clipped(name, longest=SHORT) for name in names)
    return f"Not drawn, because there are many: {shown}." if names else ""


def _is_wild(*curves: Measured) -> bool:
    """Tell whether rates differ so much that a linear axis from zero shows nothing."""
    values = sorted(point.value for measured in curves for point in measured.branch)
    return bool(values) and values[-1] > 20 * max(values[len(values) // 2], 1e-9)
