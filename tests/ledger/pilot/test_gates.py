"""Gates judge from records alone: bounds, windows, what is not measured, what is switched off."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from ledger.audit import reconcile
from ledger.pilot.config import PilotConfig
from ledger.pilot.gates import DEFAULT_GATES, GateBound, asks_less, gate_notes, gates_of, judge
from ledger.pilot.measure import RunMeasurements, TrainRow, measure_run
from ledger.pilot.metrics import METRICS, Evidence, is_metric, metric_named
from ledger.records.parts import ZERO
from tests.support.toy import ToySettings, run_toy

ROW = TrainRow(
    session=1, microbatches=1, step=1, updates=1, attempts=1, skipped=0, tokens=100, seconds=1.0, data_seconds=0.0,
    loss=1.0, grad_norm=1.0, clipped=0, memory={}, diagnostics={},
)  # fmt: skip

END = SimpleNamespace(status="completed", error=None, reason="")


def run_of(*rows: dict[str, Any]) -> RunMeasurements:
    """One session whose train events hold what is given."""
    found = RunMeasurements()
    found.rows = [
        dataclasses.replace(ROW, microbatches=number, step=number, **given)
        for number, given in enumerate(rows, start=1)
    ]
    counters = ZERO.__class__(len(rows), len(rows), 0, len(rows), 100 * len(rows), 100 * len(rows))
    session = SimpleNamespace(
        number=1, start=SimpleNamespace(parent=None), first=ZERO, last=counters, work=counters, end=END,
        evaluations=[], checkpoints=[], last_elapsed=float(len(rows)),
    )  # fmt: skip
    found.history.sessions = cast("Any", [session])
    return found


def measured(metric: str, found: RunMeasurements, window: str = "all") -> Any:
    of_run = metric_named(metric).of_run
    assert of_run is not None
    return of_run(found, cast("Any", window))


def series(name: str, values: list[Any]) -> RunMeasurements:
    return run_of(*[{name: value} for value in values])


@pytest.mark.parametrize(
    ("metric", "name", "values", "expected"),
    [
        ("final_loss", "loss", [3.0, None, 2.0], 2.0),
        ("final_loss", "loss", [3.0, "NaN"], "NaN"),
        ("best_loss", "loss", [3.0, 1.0, 2.0], 1.0),
        ("loss_left", "loss", [4.0, 3.0, 1.0], 0.25),
        ("loss_left", "loss", [4.0], None),
        ("loss_rise", "loss", [4.0, 1.0, 3.5], 2.5),
        ("loss_drop", "loss", [6.0, 5.0, 3.0], 3.0),
        ("loss_drop", "loss", [6.0, "Infinity", 3.0], "NaN"),
        ("loss_drop", "loss", [6.0, 5.0], None),
        ("loss_falls", "loss", [9.0, 8.0, 7.0, 6.0, 5.0, 4.0], 1.0),
        ("loss_falls", "loss", [4.0, 5.0, 6.0, 7.0, 8.0, 9.0], 0.0),
        ("loss_falls", "loss", [5.0, 5.0, 5.0, 5.0, 5.0, 5.0], 0.5),
        ("nonfinite_count", "loss", [1.0, "NaN", "Infinity", None], 2),
        ("nonfinite_count", "grad_norm", ["-Infinity", 1.0], 1),
        ("clipped_share", "clipped", [1, 0, 0, 1], 0.5),
        ("grad_norm_median", "grad_norm", [1.0, 9.0, 2.0], 2.0),
        ("grad_norm_max", "grad_norm", [1.0, 9.0, 2.0], 9.0),
        ("grad_norm_max", "grad_norm", [1.0, "Infinity"], "NaN"),
        ("grad_norm_p99", "grad_norm", [None], None),
        ("norm_spikes", "grad_norm", [1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 1.0, 4.1, 1.0, 4.0], 2),
        ("spike_share", "grad_norm", [1.0, 1.0, 1.0, 1.0, 5.0, 5.0, 1.0, 4.1, 1.0, 4.0], 0.0),
        ("spike_share", "grad_norm", [1.0, 1.0, 1.0, 1.0, *[5.0, 1.0] * 8], 6 / 20),
        ("spike_share", "grad_norm", [1.0] * 4, None),
        ("spike_share", "grad_norm", [1.0] * 5 + ["NaN"], "NaN"),
        ("norm_spikes", "grad_norm", [64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0], 0),
        ("norm_spikes", "grad_norm", [1.0, 1.0, 1.0, 9.0], None),
        ("throughput_ratio", "seconds", [1.0, 1.0, 1.0, 1.0, 4.0, 4.0], 0.25),
        ("throughput_ratio", "seconds", [1.0, 1.0], None),
        ("tokens_per_second", "seconds", [1.0, 3.0], 50.0),
        ("data_wait_share", "data_seconds", [1.0, 1.0], 0.5),
        ("peak_memory", "memory", [{"a": 5.0}, {"a": 7.0, "b": 6.0}], 7.0),
        ("peak_memory", "memory", [{}, {}], None),
        ("memory_growth", "memory", [{"a": value} for value in (1.0, 5.0, 10.0, 10.0, 20.0, 30.0)], 1.5),
        ("memory_growth", "memory", [{"a": value} for value in (9.0, 9.0, 10.0, 10.0, 30.0, 30.0)], 1.0),
        ("memory_growth", "memory", [{"a": 9.0}, {"a": 10.0}], None),
        ("diagnostics-dead_experts", "diagnostics", [{"dead_experts": 0.5}, {"dead_experts": 0.25}], 0.5),
        ("diagnostics-dead_experts", "diagnostics", [{}], None),
    ],
)  # fmt: skip
def test_a_metric_of_train_events(metric: str, name: str, values: list[Any], expected: object):
    assert measured(metric, series(name, values)) == expected


def test_a_window_is_the_last_part_of_the_train_events():
    found = series("clipped", [0, 0, 0, 1, 1, 1])
    assert measured("clipped_share", found, "last_half") == 1.0
    assert measured("clipped_share", series("clipped", [1, 1, 1, 1, 1, 0]), "last_third") == 0.5
    spikes = series("grad_norm", [1.0, 1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 9.0, 1.0])
    assert measured("norm_spikes", spikes, "all") == 2
    assert measured("norm_spikes", spikes, "last_third") == 1


def test_a_batch_that_is_read_twice_is_counted_and_one_that_is_read_again_after_a_resume_is_not():
    found = series("loss", [3.0, 2.0, 1.0, 1.0])
    found.batches = {0: "a", 1: "b", 2: "a", 3: "c", 4: "a"}  # the last one is not on the branch
    assert measured("repeated_share", found) == 0.25
    assert measured("repeated_share", series("loss", [3.0])) is None


def test_superseded_train_events_are_not_on_the_branch():
    found = series("loss", [3.0, 2.0, 1.0])
    found.rows.append(dataclasses.replace(ROW, session=2, microbatches=1, loss=9.0))
    assert measured("final_loss", found) == 1.0


@pytest.mark.parametrize(
    ("bound", "asked", "value", "holds"),
    [
        (GateBound(max=1.0), "<= 1", 1.0, True),
        (GateBound(max=1.0), "<= 1", 1.0000001, False),
        (GateBound(min=1.0), ">= 1", 0.999, False),
        (GateBound(min=1.0, max=2.0), ">= 1 and <= 2", 2.0, True),
        (GateBound(equal="bitwise"), "bitwise", "bitwise", True),
        (GateBound(equal="bitwise"), "bitwise", "within tolerance", False),
        (GateBound(), "finite", 3.0, True),
        *[(GateBound(max=1.0), "<= 1", value, False) for value in (None, "NaN", "-Infinity", "word")],
        *[(GateBound(), "finite", value, False) for value in (None, "NaN", "Infinity", "-Infinity")],
        (GateBound(equal="bitwise"), "bitwise", None, False),
    ],
)  # fmt: skip
def test_what_is_not_measured_or_not_finite_misses_every_bound(
    bound: GateBound, asked: str, value: Any, *, holds: bool
):
    assert bound.asked == asked
    assert bound.holds(value) is holds


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"equal": "bitwise", "max": 1.0}, "a word or for a number"),
        ({"min": 2.0, "max": 1.0}, "nothing lies between"),
        ({"metric": "losss"}, "no metric"),
        ({"max": float("nan")}, "finite"),
        ({"window": "last_tenth"}, "last_half"),
    ],
)
def test_a_bound_that_makes_no_sense_is_refused(given: dict[str, Any], problem: str):
    with pytest.raises(ValidationError, match=problem):
        GateBound(**given)


def test_a_configuration_overrides_joins_and_switches_off():
    asked = {"loss_falls": None, "late_skips": GateBound(max=0.5), "final_loss": GateBound(max=9.0)}
    gates = gates_of("stability", asked)
    assert gates["loss_falls"] is None
    late = gates["late_skips"]
    assert late is not None
    assert (late.metric, late.max) == ("skipped_share", 0.5)
    assert gates["loss_drop"] == DEFAULT_GATES["stability"]["loss_drop"]
    assert list(gates)[-1] == "final_loss"
    with pytest.raises(ValueError, match="'late_skipz' is no metric"):
        gates_of("stability", {"late_skipz": GateBound(max=1.0)})


@pytest.mark.parametrize(
    ("asked", "less"),
    [
        ({"skipped_share": GateBound(max=0.2)}, ["skipped_share"]),
        ({"skipped_share": GateBound(max=0.05), "loss_drop": GateBound(min=1.0)}, []),
        ({"loss_drop": GateBound(min=-1.0), "ended": GateBound(equal="stopped: x")}, ["ended", "loss_drop"]),
        ({"loss_drop": GateBound(max=9.0)}, ["loss_drop"]),
        ({"loss_drop": None, "final_loss": GateBound(max=9.0)}, []),
    ],
)
def test_a_bound_that_asks_less_than_the_default_is_told(asked: dict[str, GateBound | None], less: list[str]):
    gates = judge("stability", asked, Evidence())
    assert [gate.metric for gate in gates if asks_less("stability", gate)] == less


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"stability": {"gates": {"los_drop": {"max": 1.0}}}}, "stability.gates: 'los_drop' is no metric"),
        ({"stability": {"gates": {"los_drop": None}}}, "stability.gates: 'los_drop' is no metric"),
        ({"validate": {"gates": {"leaked": {"max": 1.0}}}}, "validate.gates: 'leaked' is no metric"),
        ({"prepare": {"configs": ["x"], "gates": {"words": {"min": 1}}}}, "prepare.gates: 'words'"),
        ({"extra": {"mine": {"gates": {"los": {"max": 1.0}}}}}, "mine.gates: 'los' is no metric"),
        (
            {"stability": {"gates": {"late_skips": {"metric": "updates"}}}},
            "the gate late_skips measures skipped_share",
        ),
    ],
)
def test_a_gate_that_is_none_is_said_before_anything_is_trained(section: dict[str, Any], problem: str):
    with pytest.raises(ValidationError, match=problem):
        PilotConfig.model_validate({"name": "x", **section})


def test_every_default_names_a_metric_that_is_explained():
    for gates in DEFAULT_GATES.values():
        for name, bound in gates.items():
            assert is_metric(bound.metric or name)
            assert bound.reason
    assert all(metric.what and metric.advice for metric in METRICS.values())


def test_what_is_switched_off_is_measured_and_listed_as_not_gated():
    gates = judge("overfit", {"loss_left": None}, Evidence(run=series("loss", [4.0, 3.0, 3.9])))
    found = {gate.metric: gate for gate in gates}
    assert (found["loss_left"].asked, found["loss_left"].gated, found["loss_left"].passed) == (
        "not gated",
        False,
        True,
    )
    assert found["loss_left"].measured == pytest.approx(0.975)
    assert found["nonfinite_count"].gated
    notes = list(gate_notes("overfit", gates))
    assert notes == ["LG902 warning: overfit: not gated, on purpose: loss left"]


def test_a_stage_without_a_bound_is_warned_of_and_a_missed_one_says_what_to_think_of():
    assert list(gate_notes("mine", judge("mine", {}, Evidence()))) == [
        "LG902 warning: mine: nothing is asked of what was measured"
    ]
    gates = judge("overfit", None, Evidence(run=series("loss", [4.0, 3.0, 3.9])))
    (note,) = gate_notes("overfit", gates)
    assert note.startswith("LG901 error: overfit: loss left is 0.975, asked <= 0.5 (a learning rate")
    unmeasured = list(gate_notes("overfit", judge("overfit", None, Evidence(run=RunMeasurements()))))
    assert unmeasured[-1].startswith(
        "LG901 error: overfit: not measured: ended, loss left, skipped share (the run"
    )


def test_what_the_stage_measured_itself_comes_first():
    (gate,) = judge("x", {"leaked_share": GateBound(max=0.1)}, Evidence(others={"leaked_share": 0.4}))
    assert (gate.measured, gate.passed, gate.max) == (0.4, False, 0.1)


def test_equivalence_is_read_from_the_verdict():
    account = {"equivalence": {"LG801": "bitwise", "LG803": "differs"}, "redone_places_compared": 3}
    verdict = cast("Any", SimpleNamespace(account=account, findings=[], verdict="failed"))
    found = {
        gate.metric: (gate.measured, gate.passed) for gate in judge("resume", None, Evidence(verdict=verdict))
    }
    assert found["same_start"] == ("bitwise", True)
    assert found["same_loss"] == ("differs", False)
    assert found["same_data"] == (None, False)
    assert found["redone_equal"] == ("bitwise", True)
    verdict.findings.append(SimpleNamespace(rule="LG306"))
    again = {gate.metric: gate.measured for gate in judge("resume", None, Evidence(verdict=verdict))}
    assert again["redone_equal"] == "differs"


RECIPE: dict[str, Any] = {
    "optimizer": {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.81, "weight_decay": 0.5, "muon": None},
    "batch": {"micro_batch": 2, "sequence": 8, "accumulation": 4},
    "schedule": {"warmup_steps": 10, "horizon": 6_400},
}


@pytest.mark.parametrize(
    ("metric", "changes", "expected"),
    [
        ("decay_per_update", {}, 5e-4),
        ("decay_per_update", {"muon": {"learning_rate": 0.02}}, 1e-2),
        ("decay_per_update", {"muon": {"learning_rate": 0.02, "weight_decay": 0.01}}, 5e-4),
        ("moment_ratio", {}, 1.0),
        ("moment_ratio", {"beta2": 0.0}, None),
        ("warmup_share", {}, 0.1),
    ],
)
def test_what_a_recipe_says_of_itself(metric: str, changes: dict[str, Any], expected: float | None):
    found = series("loss", [3.0])
    found.config = RECIPE | {"optimizer": RECIPE["optimizer"] | changes}
    assert measured(metric, found) == pytest.approx(expected)
    found.config = {}
    assert measured(metric, found) is None


def test_a_schedule_without_a_horizon_has_no_share_of_warm_up():
    found = series("loss", [3.0])
    found.config = RECIPE | {"schedule": {"warmup_steps": 10}}
    assert measured("warmup_share", found) == 0.0


def test_held_out_text_is_counted_in_updates():
    found = series("loss", [3.0, 2.0])
    assert measured("held_out_updates", found) is None
    evaluations = [SimpleNamespace(complete=True, tokens=50, microbatches=2)]
    cast("Any", found.history.sessions[0]).evaluations = evaluations
    assert measured("held_out_updates", found) == 0.5


def test_a_whole_run_is_measured_in_one_pass(tmp_path: Path):
    run_toy(tmp_path / "run", ToySettings(skip_attempts=frozenset({3})))
    found = measure_run(tmp_path / "run")
    evidence = Evidence(run=found, verdict=reconcile(tmp_path / "run"))
    names = [name for name, metric in METRICS.items() if metric.of_run is not None]
    gates = judge("all", {name: GateBound() for name in names}, evidence)
    values = {gate.metric: gate.measured for gate in gates}
    assert values["updates"] == 12
    assert values["skipped_share"] == pytest.approx(1 / 13)
    assert values["longest_skip"] == 1
    assert values["evaluations"] == found.evaluations > 1
    assert values["checkpoints"] == found.checkpoints_on_branch() > 1
    assert values["repeated_share"] == 0
    assert values["ended"] == "completed"
    assert values["nonfinite_count"] == found.skips.get("nonfinite_loss", 0) == 1
    missing = {name for name, value in values.items() if value is None}
    assert missing <= {
        "peak_memory",
        "memory_growth",
        "tokens_per_second",
        "data_wait_share",
        "throughput_ratio",
        "decay_per_update",
        "moment_ratio",
        "warmup_share",
    }
