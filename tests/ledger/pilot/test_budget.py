"""The budget: rates of the pilot times counts of the recipe."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.pilot.budget import Rates, project_budget
from ledger.pilot.long_run import LongRun

RATES = Rates(
    stage="stability",
    seconds_per_token=0.01,
    data_seconds_per_token=0.001,
    wall_tokens_per_second=80.0,
    evaluation_seconds_per_token=0.002,
    checkpoint_seconds=9.0,
    checkpoint_bytes=1_000,
    startup_seconds=36.0,
    log_bytes_per_update=50.0,
)


def plan(**checkpoint: Any) -> LongRun:
    config = {
        "run": {"target_step": 1_000},
        "batch": {"micro_batch": 2, "sequence": 60, "accumulation": 3},
        "checkpoint": {"policy": "interval", "interval": 100, **checkpoint},
        "evaluation": {"interval": 500, "batches": 4, "micro_batch": 5},
    }
    return LongRun.of(config, parameters=10)


def project(found: LongRun, *, per_day: float = 0.0, rates: Rates = RATES):
    return project_budget(found, rates, validation_tokens=9_000, free_bytes=5_000, per_day=per_day)


def test_every_number_is_a_rate_times_a_count():
    budget = project(plan())
    assert budget.planned_tokens == 360_000
    assert budget.training_hours == pytest.approx(1.0)
    assert budget.data_hours == pytest.approx(0.1)
    assert budget.evaluations == 3
    assert budget.evaluation_hours == pytest.approx((2 * 1_200 + 9_000) * 0.002 / 3600)
    assert (budget.checkpoints, budget.written_bytes, budget.kept_bytes) == (10, 10_000, 10_000)
    assert budget.checkpoint_hours == pytest.approx(10 * 9 / 3600)
    assert budget.wall_hours == pytest.approx(1.1 + 0.01 + budget.evaluation_hours + 0.025)
    assert budget.log_bytes == 50_000
    assert budget.disk_bytes == 60_000
    assert budget.checkpoint_share == pytest.approx(0.025 / budget.wall_hours)
    assert budget.preemption.superseded_hours == 0


@pytest.mark.parametrize(
    ("checkpoint", "written", "kept"),
    [
        ({"keep_last": 2}, 10, 5),  # two newest, the best, one being written, the final one
        ({"keep_last": 2, "milestones": [50, 200]}, 11, 7),
        ({"policy": "final", "interval": None}, 1, 1),
        ({"policy": "none", "interval": None}, 0, 0),
        ({"keep_last": 50}, 10, 10),
    ],
)
def test_retention_bounds_what_is_kept(checkpoint: dict[str, Any], written: int, kept: int):
    budget = project(plan(**checkpoint))
    assert (budget.written_bytes, budget.kept_bytes) == (written * 1_000, kept * 1_000)


def test_interruptions_lose_half_a_stretch_each_where_they_are_rare():
    budget = project(plan(), per_day=0.24)
    work = budget.wall_hours - budget.startup_hours
    assert budget.preemption.interruptions == pytest.approx(0.01 * work, rel=0.01)
    assert budget.preemption.superseded_hours == pytest.approx(0.01 * work * work / 10 / 2, rel=0.01)
    without = project(plan(policy="final", interval=None), per_day=0.24)
    assert float(without.preemption.superseded_hours) > 9 * float(budget.preemption.superseded_hours)


def test_what_never_ends_is_said_to_be_infinite():
    rates = RATES.__class__(**{**RATES.__dict__, "seconds_per_token": 1e4})
    budget = project(plan(policy="final", interval=None), per_day=24.0, rates=rates)
    assert budget.preemption.wall_hours == "Infinity"


def test_what_the_pilot_did_not_do_is_an_assumption():
    rates = RATES.__class__(
        **{
            **RATES.__dict__,
            "evaluation_seconds_per_token": None,
            "checkpoint_seconds": None,
            "startup_seconds": None,
        }
    )
    said = " ".join(project(plan(), rates=rates).assumptions)
    assert "evaluated nothing" in said
    assert "took none" in said
    assert "starting takes no time" in said
