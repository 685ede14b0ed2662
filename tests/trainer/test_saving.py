"""Which states a run keeps: policies, milestones, retention, exports, and what is saved when somebody asks to stop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from ledger.audit import reconcile, summarize
from ledger.checkpoints import find_checkpoints
from ledger.records.events import Export, Pruned, SessionEnd, Validation
from tests.trainer.records import assert_same_training, evaluations, events, final_tensors, sessions, updates
from tests.trainer.tiny import StopAfter, tiny_config, train
from trainer import loop
from trainer.config import TrainerConfig
from trainer.evaluate import evaluate


def config_of(
    dataset: Path, *, target: int = 8, evaluation: dict[str, Any] | None = None, **checkpoint: Any
) -> TrainerConfig:
    return tiny_config(
        dataset,
        run={"target_step": target},
        checkpoint=checkpoint,
        evaluation={"enabled": False} if evaluation is None else evaluation,
    )


def kept(run: Path) -> list[tuple[int, str]]:
    return [(found.manifest.counters.step, found.manifest.kind) for found in find_checkpoints(run)]


def errors_of(run: Path) -> list[str]:
    """Return what a rehash finds wrong with a run; the random ids of the tiny dataset (LG5) are no text."""
    found = reconcile(run, rehash=True).findings
    return [str(one) for one in found if one.severity == "error" and not one.rule.startswith("LG5")]


def test_explicit_keeps_its_milestones_and_the_final(dataset, tmp_path):
    train(config_of(dataset, policy="explicit", milestones=[2, 5, 8]), tmp_path / "run")
    assert kept(tmp_path / "run") == [(2, "milestone"), (5, "milestone"), (8, "final")]


def test_retention_keeps_the_newest_the_milestones_and_the_best(dataset, tmp_path):
    config = config_of(
        dataset,
        target=9,
        evaluation={"interval": 1, "batches": 1},
        policy="interval",
        interval=1,
        milestones=[3],
        keep_last=2,
    )
    train(config, tmp_path / "run")
    subset = {step: loss for step, loss, complete in evaluations(tmp_path / "run") if not complete}
    best = min(subset, key=lambda step: subset[step])
    on_the_way = {7, 8} | {step for step in (best,) if step < 9 and step != 3}
    assert {step for step, _ in kept(tmp_path / "run")} == on_the_way | {3, 9}
    found = summarize(tmp_path / "run").best
    assert found is not None
    assert (found.step, found.loss, found.complete) == (best, subset[best], False)
    assert found.checkpoint == f"checkpoints/step-{best:08d}-s01"


def test_a_best_moment_that_was_not_saved_has_no_checkpoint(dataset, tmp_path):
    train(config_of(dataset, evaluation={"interval": 1, "batches": 1}, policy="final"), tmp_path / "run")
    found = summarize(tmp_path / "run").best
    assert found is not None
    assert (found.checkpoint is None) == (found.step != 8)


@pytest.mark.slow
def test_a_run_goes_on_from_a_checkpoint_whose_own_parent_was_pruned(dataset, tmp_path):
    policy: dict[str, Any] = {"policy": "interval", "interval": 2, "keep_last": 1}
    config = config_of(dataset, target=12, **policy)
    train(config_of(dataset, target=12, policy="interval", interval=2), tmp_path / "control")
    for attempts in (3, 4, 20):
        train(config, tmp_path / "run", resume="auto", stop=StopAfter(attempts=attempts))
    assert sessions(tmp_path / "run")[-1] == ("auto", "completed")
    pruned = [event.path for event in events(tmp_path / "run") if isinstance(event, Pruned)]
    assert "checkpoints/step-00000003-s01" in pruned
    assert final_tensors(tmp_path / "run") == final_tensors(tmp_path / "control")
    assert errors_of(tmp_path / "run") == []


def test_exports_are_weights_alone_and_the_final_is_whole(dataset, tmp_path):
    config = config_of(dataset, target=6, policy="interval", interval=2, training_state=False)
    train(config, tmp_path / "run")
    train(config_of(dataset, target=6, policy="interval", interval=2), tmp_path / "control")
    assert kept(tmp_path / "run") == [(6, "final")]
    assert final_tensors(tmp_path / "run") == final_tensors(tmp_path / "control")
    found = [event for event in events(tmp_path / "run") if isinstance(event, Export)]
    assert [event.path for event in found] == ["exports/step-00000002-s01", "exports/step-00000004-s01"]
    for event in found:
        (name,) = event.files
        exported = load_file(tmp_path / "run" / event.path / name)
        whole = load_file(tmp_path / "control" / "checkpoints" / Path(event.path).name / name)
        assert exported.keys() == whole.keys()
        assert all(exported[key].equal(whole[key]) for key in whole)
        assert event.model == updates(tmp_path / "control")[event.step]["state"].model
    assert errors_of(tmp_path / "run") == []


def test_an_export_that_was_changed_is_an_error_and_one_that_was_removed_a_hint(dataset, tmp_path):
    config = config_of(dataset, target=6, policy="interval", interval=2, training_state=False)
    train(config, tmp_path / "damaged")
    first, second = sorted((tmp_path / "damaged" / "exports").glob("*/model.safetensors"))
    first.unlink()
    content = bytearray(second.read_bytes())
    content[-1] ^= 1
    second.write_bytes(content)
    found = {finding.where: finding for finding in reconcile(tmp_path / "damaged", rehash=True).findings}
    assert [found[str(path.relative_to(tmp_path / "damaged"))].severity for path in (first, second)] == [
        "hint",
        "error",
    ]


@pytest.mark.slow
def test_a_stop_keeps_the_whole_state_where_only_weights_are_kept_on_the_way(dataset, tmp_path):
    config = config_of(dataset, target=6, policy="interval", interval=2, training_state=False)
    train(config, tmp_path / "control")
    train(config, tmp_path / "run", stop=StopAfter(attempts=3))
    assert kept(tmp_path / "run") == [(3, "signal")]
    train(config, tmp_path / "run", resume="auto")
    assert final_tensors(tmp_path / "run") == final_tensors(tmp_path / "control")


def _stop_in_window(monkeypatch, stop: StopAfter, *, window: int) -> None:
    """Ask to stop in the middle of a step, so that what is due at it is not done any more."""
    process, numbers = loop.process_window, iter(range(1, 10**6))

    def asked(training):
        if next(numbers) == window:
            stop.make(15)
        return process(training)

    monkeypatch.setattr(loop, "process_window", asked)


@pytest.mark.parametrize(
    "window", [pytest.param(3, marks=pytest.mark.slow), 4, pytest.param(6, marks=pytest.mark.slow), 8]
)
def test_what_a_stop_left_undone_is_done_by_the_next_session(dataset, tmp_path, monkeypatch, window):
    config = config_of(
        dataset, evaluation={"interval": 2, "batches": 1}, policy="interval", interval=4, milestones=[6]
    )
    train(config, tmp_path / "control")
    stop = StopAfter(attempts=10**6)
    with monkeypatch.context() as patch:
        _stop_in_window(patch, stop, window=window)
        assert train(config, tmp_path / "run", stop=stop) == "interrupted"
    kinds = {3: "signal", 4: "signal", 6: "milestone", 8: "final"}
    assert kept(tmp_path / "run")[-1] == (window, kinds[window])
    assert not [
        event for event in events(tmp_path / "run") if isinstance(event, Validation) and event.step == window
    ]
    assert train(config, tmp_path / "run", resume="auto") == ("closed" if window == 8 else "completed")
    assert_same_training(tmp_path / "control", tmp_path / "run")


def _stop_in_evaluation(monkeypatch, stop: StopAfter, *, number: int) -> None:
    """Ask to stop once the first batch of an evaluation was measured, and count the batches that follow."""
    numbers = iter(range(1, 10**6))

    def stopped(*given, is_stopped, **named):
        is_this = next(numbers) == number
        batches = iter(range(10**6))

        def asked() -> bool:
            if is_this and next(batches) == 1:
                stop.make(15)
            return is_stopped()

        return evaluate(*given, is_stopped=asked, **named)

    monkeypatch.setattr(loop, "evaluate", stopped)


@pytest.mark.parametrize(
    ("number", "saved", "next_end"),
    [
        pytest.param(1, (2, "signal"), "completed", marks=pytest.mark.slow, id="on the way"),
        pytest.param(2, (4, "final"), "closed", marks=pytest.mark.slow, id="at the target"),
        pytest.param(3, (4, "final"), "closed", id="of the complete split"),
    ],
)
def test_an_evaluation_gives_way_to_a_stop_and_is_made_by_the_next_session(
    dataset, tmp_path, monkeypatch, number, saved, next_end
):
    config = config_of(dataset, target=4, evaluation={"interval": 2, "batches": 2}, policy="final")
    train(config, tmp_path / "control")
    stop = StopAfter(attempts=10**6)
    with monkeypatch.context() as patch:
        _stop_in_evaluation(patch, stop, number=number)
        assert train(config, tmp_path / "run", stop=stop) == "interrupted"
    assert kept(tmp_path / "run") == [saved]
    assert len(evaluations(tmp_path / "run")) == number - 1
    assert train(config, tmp_path / "run", resume="auto") == next_end
    assert_same_training(tmp_path / "control", tmp_path / "run")


def test_a_final_state_whose_weights_are_not_kept_is_measured_all_the_same(dataset, tmp_path, monkeypatch):
    stop = StopAfter(attempts=10**6)
    _stop_in_evaluation(monkeypatch, stop, number=1)
    assert train(config_of(dataset, target=2, evaluation={}, policy="none"), tmp_path / "run", stop=stop) == (
        "completed"
    )
    assert stop.made_at is not None
    assert [complete for _, _, complete in evaluations(tmp_path / "run")] == [True]


@pytest.mark.parametrize(("grace", "is_saved"), [(3_600.0, True), (0.0, False)])
def test_a_checkpoint_is_taken_only_if_it_fits_the_grace_period(
    dataset, tmp_path, monkeypatch, grace, is_saved
):
    config = config_of(dataset, policy="interval", interval=2)
    config = config.model_copy(update={"limits": config.limits.model_copy(update={"grace_seconds": grace})})
    stop = StopAfter(attempts=10**6)
    _stop_in_window(monkeypatch, stop, window=3)
    assert train(config, tmp_path / "run", stop=stop) == "interrupted"
    assert ((3, "signal") in kept(tmp_path / "run")) == is_saved
    end = events(tmp_path / "run")[-1]
    assert isinstance(end, SessionEnd)
    assert end.reason.startswith("SIGTERM")
    assert ("no checkpoint" in end.reason) != is_saved


def test_without_a_checkpoint_before_it_is_tried(dataset, tmp_path, monkeypatch):
    config = config_of(dataset)
    config = config.model_copy(update={"limits": config.limits.model_copy(update={"grace_seconds": 0.0})})
    stop = StopAfter(attempts=10**6)
    _stop_in_window(monkeypatch, stop, window=2)
    train(config, tmp_path / "run", stop=stop)
    assert kept(tmp_path / "run") == [(2, "signal")]


def test_the_grace_period_begins_with_the_signal(monkeypatch):
    stop = StopAfter(attempts=10**6)
    assert stop.seconds_left(grace_seconds=30) == 30
    stop.make(15)
    made = stop.made_at
    assert made is not None
    monkeypatch.setattr(time, "monotonic", lambda: made + 12.0)
    assert stop.seconds_left(grace_seconds=30) == 18.0
