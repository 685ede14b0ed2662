"""From what a pilot measured to what the long run will take: hours, checkpoints, disk, and what interruptions cost.

Every number is a rate of the pilot times a count of the recipe, so it is right if the long run behaves as the pilot
did. What it does not know is listed as an assumption.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ledger.laws.preemption import best_interval_hours, expected_interruptions, expected_lost_hours
from ledger.pilot.long_run import LongRun
from ledger.pilot.measure import RunMeasurements
from ledger.records.fields import as_measurement
from ledger.records.locks import Budget, Preemption

__all__ = ["DEFAULT_PREEMPTIONS_PER_DAY", "Rates", "project_budget", "rates_of"]

DEFAULT_PREEMPTIONS_PER_DAY: Final = 1.0

_HOUR: Final = 3600.0


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What a pilot measured, per unit of work."""

    stage: str
    seconds_per_token: float
    """Training only."""
    data_seconds_per_token: float
    wall_tokens_per_second: float
    evaluation_seconds_per_token: float | None
    """None: it evaluated nothing."""
    checkpoint_seconds: float | None
    """For how long one blocked training, on average; None: it took none."""
    checkpoint_bytes: int
    startup_seconds: float | None
    log_bytes_per_update: float


def rates_of(found: RunMeasurements, *, stage: str, log_bytes: int) -> Rates | None:
    """Return the rates of a pilot's run over all of its sessions; None where it did not train for a measurable time."""
    tokens = sum(row.tokens for row in found.rows)
    seconds = sum(row.seconds for row in found.rows)
    updates = sum(row.updates for row in found.rows)
    if not tokens or not updates or seconds <= 0 or found.elapsed_seconds <= 0:
        return None
    sessions = found.history.sessions
    evaluated = sum(one.tokens for session in sessions for one in session.evaluations)
    startups = [
        session.end.phases["startup"]
        for session in sessions
        if session.end and "startup" in session.end.phases
    ]
    count = found.checkpoint_count
    return Rates(
        stage=stage,
        seconds_per_token=seconds / tokens,
        data_seconds_per_token=sum(row.data_seconds for row in found.rows) / tokens,
        wall_tokens_per_second=found.history.spent().tokens_seen / found.elapsed_seconds,
        evaluation_seconds_per_token=found.evaluation_seconds / evaluated if evaluated else None,
        checkpoint_seconds=found.checkpoint_seconds / count if count else None,
        checkpoint_bytes=found.greatest_checkpoint_bytes,
        startup_seconds=sum(startups) / len(startups) if startups else None,
        log_bytes_per_update=log_bytes / updates,
    )


def project_budget(
    plan: LongRun,
    rates: Rates,
    *,
    validation_tokens: int,
    free_bytes: int | None,
    per_day: float = DEFAULT_PREEMPTIONS_PER_DAY,
) -> Budget:
    """Return what the long run will take if it behaves as the pilot did.

    Args:
        plan: the long run's recipe.
        rates: what the pilot measured.
        validation_tokens: target positions of the complete held-out split, measured once at the end.
        free_bytes: free space where the run will lie, or None.
        per_day: interruptions a day of wall clock to reckon with.
    """
    tokens = plan.updates * plan.tokens_per_update
    training, data = tokens * rates.seconds_per_token / _HOUR, tokens * rates.data_seconds_per_token / _HOUR
    evaluations, evaluation = _evaluation(plan, rates, validation_tokens=validation_tokens)
    checkpoints = len(plan.checkpoint_steps)
    each = (rates.checkpoint_seconds or 0.0) / _HOUR
    startup = (rates.startup_seconds or 0.0) / _HOUR
    wall = startup + training + data + evaluation + checkpoints * each
    log_bytes = math.ceil(plan.updates * rates.log_bytes_per_update)
    kept_bytes = plan.most_kept * rates.checkpoint_bytes
    work = wall - startup - checkpoints * each
    return Budget(
        rests_on=rates.stage,
        updates=plan.updates,
        planned_tokens=tokens,
        tokens_per_second=1 / rates.seconds_per_token,
        wall_tokens_per_second=rates.wall_tokens_per_second,
        training_hours=training,
        data_hours=data,
        evaluations=evaluations,
        evaluation_hours=evaluation,
        checkpoints=checkpoints,
        checkpoint_hours=checkpoints * each,
        startup_hours=startup,
        wall_hours=wall,
        evaluation_share=evaluation / wall,
        checkpoint_share=checkpoints * each / wall,
        checkpoint_bytes=rates.checkpoint_bytes,
        written_bytes=checkpoints * rates.checkpoint_bytes,
        kept_bytes=kept_bytes,
        log_bytes=log_bytes,
        disk_bytes=kept_bytes + log_bytes,
        free_bytes=free_bytes,
        preemption=_preemption(plan, per_day=per_day, work=work, each=each, startup=startup, wall=wall),
        assumptions=list(_assumptions(plan, rates)),
    )


def _evaluation(plan: LongRun, rates: Rates, *, validation_tokens: int) -> tuple[int, float]:
    """Return how many evaluations there are, the complete one at the end included, and their hours."""
    if not plan.evaluation.enabled:
        return 0, 0.0
    subset = min(plan.subset_tokens, validation_tokens)
    tokens = plan.subset_evaluations * subset + validation_tokens
    return plan.subset_evaluations + 1, tokens * (rates.evaluation_seconds_per_token or 0.0) / _HOUR


def _preemption(
    plan: LongRun, *, per_day: float, work: float, each: float, startup: float, wall: float
) -> Preemption:
    """Return what interruptions cost: the work between checkpoints is spread evenly over the updates."""
    rate = per_day / 24
    steps = plan.checkpoint_steps or [plan.updates]
    stretches = [(end - begin) / plan.updates * work + each for begin, end in pairwise([0, *steps])]
    count = expected_interruptions(stretches, rate=rate)
    lost = expected_lost_hours(stretches, rate=rate)
    best = best_interval_hours(each, rate=rate) if rate > 0 and each > 0 else None
    return Preemption(
        per_day=per_day,
        interruptions=as_measurement(count),
        superseded_hours=as_measurement(lost),
        restart_hours=as_measurement(count * startup if count else 0.0),
        wall_hours=as_measurement(wall + lost + (count * startup if count else 0.0)),
        best_interval_hours=best,
    )


def _assumptions(plan: LongRun, rates: Rates) -> list[str]:
    found = [
        f"the machine trains, reads and writes as it did in the stage {rates.stage}, all the time",
        "no attempt is skipped beyond the plan",
        "interruptions come at a constant rate and without memory, and lose what was done since the last checkpoint",
    ]
    if rates.evaluation_seconds_per_token is None and plan.evaluation.enabled:
        found.append("evaluation takes no time: the pilot evaluated nothing")
    if rates.checkpoint_seconds is None and plan.checkpoint_steps:
        found.append("checkpoints take neither time nor space: the pilot took none")
    if rates.startup_seconds is None:
        found.append("starting takes no time: no session of the pilot said how long it took")
    return found
