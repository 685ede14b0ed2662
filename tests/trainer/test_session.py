from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ledger.checkpoints import find_checkpoints
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    LockedError,
    RefusedError,
    UsageError,
    VerificationError,
)
from ledger.recorder import RunRecorder
from ledger.records.events import Amendment, Overflow, SessionEnd, SessionStart, Train, Validation
from tests.trainer.records import events, final_evaluation, final_tensors, sessions, updates
from tests.trainer.tiny import StopAfter, tiny_config, train, write_dataset
from trainer import loop
from trainer.loop import TrainingFailedError
from trainer.precision import gradient_norm


def _bytes(run: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


def _written(run: Path) -> dict[str, bytes]:
    """Return everything but the lock, whose content says who held it last."""
    return {name: content for name, content in _bytes(run).items() if not name.endswith("run.lock")}


def test_the_order_at_a_step_is_train_val_checkpoint(dataset, tmp_path):
    config = tiny_config(
        dataset,
        run={"target_step": 4},
        evaluation={"interval": 2},
        checkpoint={"policy": "interval", "interval": 2},
    )
    train(config, tmp_path / "run")
    kinds = [type(event).__name__ for event in events(tmp_path / "run")]
    assert kinds == [
        "SessionStart", "Train", "Train", "Validation", "Checkpoint",
        "Train", "Train", "Validation", "Checkpoint", "Validation", "SessionEnd",
    ]  # fmt: skip


def test_a_folder_that_holds_a_run_needs_a_word(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 2})
    train(config, tmp_path / "run")
    before = _written(tmp_path / "run")
    with pytest.raises(UsageError, match="--resume auto") as caught:
        train(config, tmp_path / "run")
    assert caught.value.exit_code == 2
    assert _written(tmp_path / "run") == before


def test_resume_and_restart_together_are_refused(dataset, tmp_path):
    with pytest.raises(UsageError, match="contradict"):
        train(tiny_config(dataset), tmp_path / "run", resume="auto", restart=True)


@pytest.mark.parametrize("resume", ["latest", "checkpoints/step-00000002-s01"])
def test_there_must_be_a_run_to_resume(dataset, tmp_path, resume):
    with pytest.raises(UsageError, match="no run to resume"):
        train(tiny_config(dataset), tmp_path / "run", resume=resume)


def test_auto_begins_a_new_run(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 2})
    assert train(config, tmp_path / "run", resume="auto") == "completed"
    assert sessions(tmp_path / "run") == [("fresh", "completed")]


def test_latest_needs_a_checkpoint(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 3}, checkpoint={"policy": "none"})
    train(config, tmp_path / "run", stop=StopAfter(attempts=1))
    with pytest.raises(EvidenceMissingError, match="no checkpoint"):
        train(config, tmp_path / "run", resume="latest")


def test_a_checkpoint_that_is_not_of_the_run_is_refused(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 2})
    for name in ("one", "other"):
        train(config, tmp_path / name)
    foreign = tmp_path / "other" / "checkpoints" / "step-00000002-s01"
    with pytest.raises(UsageError, match="not a complete checkpoint of this run"):
        train(config, tmp_path / "one", resume=str(foreign))


@pytest.mark.parametrize("resume", ["auto", "latest"])
def test_a_completed_run_started_again_writes_nothing(dataset, tmp_path, resume):
    config = tiny_config(dataset, run={"target_step": 3})
    train(config, tmp_path / "run")
    before = _written(tmp_path / "run")
    assert train(config, tmp_path / "run", resume=resume) is None
    assert _written(tmp_path / "run") == before


def test_a_raised_target_goes_on_from_the_final_checkpoint(dataset, tmp_path):
    schedule = {"warmup_steps": 1, "min_lr_ratio": 0.1}
    train(tiny_config(dataset, run={"target_step": 3}, schedule=schedule), tmp_path / "run")
    raised = tiny_config(dataset, run={"target_step": 5}, schedule=schedule)
    assert train(raised, tmp_path / "run", resume="auto") == "completed"
    found = events(tmp_path / "run")
    (amendment,) = [event for event in found if isinstance(event, Amendment)]
    assert (amendment.field, amendment.from_, amendment.to) == ("run.target_step", 3, 5)
    rates = {step: measured["lr"]["decay"] for step, measured in updates(tmp_path / "run").items()}
    assert rates[3] == rates[4] == rates[5] == pytest.approx(3e-4)


def test_a_lowered_target_is_refused(dataset, tmp_path):
    train(tiny_config(dataset, run={"target_step": 3}), tmp_path / "run")
    with pytest.raises(RefusedError, match=r"run\.target_step"):
        train(tiny_config(dataset, run={"target_step": 2}), tmp_path / "run", resume="auto")


def test_operational_changes_become_amendments(dataset, tmp_path):
    train(tiny_config(dataset, run={"target_step": 6}), tmp_path / "run", stop=StopAfter(attempts=2))
    changed = tiny_config(dataset, run={"target_step": 6}, logging={"interval": 2})
    train(changed, tmp_path / "run", resume="auto")
    (amendment,) = [event for event in events(tmp_path / "run") if isinstance(event, Amendment)]
    assert (amendment.field, amendment.class_) == ("logging.interval", "operational")


def test_another_recipe_and_other_data_are_refused_in_one_message(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 4})
    train(config, tmp_path / "run", stop=StopAfter(attempts=2))
    before = _written(tmp_path / "run")
    other = write_dataset(tmp_path / "other", seed=2)
    changed = tiny_config(
        other, run={"target_step": 4}, batch={"accumulation": 2}, optimizer={"clip_norm": 0.5}
    )
    with pytest.raises(RefusedError) as caught:
        train(changed, tmp_path / "run", resume="auto")
    assert caught.value.exit_code == 1
    for name in ("data.metadata_sha256", "batch.accumulation", "optimizer.clip_norm"):
        assert name in str(caught.value)
    assert _written(tmp_path / "run") == before


def test_a_moved_dataset_is_no_other_dataset(dataset, tmp_path):
    train(tiny_config(dataset, run={"target_step": 4}), tmp_path / "run", stop=StopAfter(attempts=2))
    moved = shutil.copytree(dataset, tmp_path / "moved")
    assert train(tiny_config(moved, run={"target_step": 4}), tmp_path / "run", resume="auto") == "completed"


def test_a_dataset_other_than_the_one_asked_for_is_refused(dataset, tmp_path):
    config = tiny_config(dataset, data={"metadata_sha256": "0" * 64})
    with pytest.raises(RefusedError, match="metadata_sha256"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "trainer.json"])
def test_a_damaged_checkpoint_is_not_loaded(dataset, tmp_path, name):
    config = tiny_config(dataset, run={"target_step": 4})
    train(config, tmp_path / "damaged", stop=StopAfter(attempts=2))
    path = tmp_path / "damaged" / "checkpoints" / "step-00000002-s01" / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(VerificationError, match=name):
        train(config, tmp_path / "damaged", resume="auto")
    assert sessions(tmp_path / "damaged") == [("fresh", "interrupted")]


def test_a_second_writer_is_refused(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 2})
    with RunRecorder(tmp_path / "run"), pytest.raises(LockedError):
        train(config, tmp_path / "run")


def test_evaluation_leaves_no_trace(dataset, tmp_path):
    plain = tiny_config(dataset, run={"target_step": 6}, evaluation={"interval": None})
    often = tiny_config(dataset, run={"target_step": 6}, evaluation={"interval": 1, "batches": 1})
    train(plain, tmp_path / "plain")
    train(often, tmp_path / "often")
    assert updates(tmp_path / "plain") == updates(tmp_path / "often")
    assert final_tensors(tmp_path / "plain") == final_tensors(tmp_path / "often")
    for event in events(tmp_path / "often"):
        if isinstance(event, Validation):
            assert event.rng_before == event.rng_after


def test_the_final_evaluation_measures_every_target_of_the_final_checkpoint(dataset, tmp_path):
    train(tiny_config(dataset, run={"target_step": 2}, evaluation={"interval": 1}), tmp_path / "run")
    final = final_evaluation(tmp_path / "run")
    assert (final.tokens, final.complete, final.step) == (149, True, 2)
    assert [e.complete for e in events(tmp_path / "run") if isinstance(e, Validation)] == [False, False, True]


def test_without_validation_nothing_is_measured(tmp_path):
    dataset = write_dataset(tmp_path / "data", validation_tokens=0)
    with pytest.raises(EvidenceMissingError, match="validation"):
        train(tiny_config(dataset), tmp_path / "run")
    config = tiny_config(dataset, run={"target_step": 2}, evaluation={"enabled": False})
    assert train(config, tmp_path / "run") == "completed"
    (start,) = [event for event in events(tmp_path / "run") if isinstance(event, SessionStart)]
    assert start.data.validation is None


def test_validation_can_be_left_out_later(dataset, tmp_path):
    train(tiny_config(dataset, run={"target_step": 4}), tmp_path / "run", stop=StopAfter(attempts=2))
    without = tiny_config(dataset, run={"target_step": 4}, evaluation={"enabled": False})
    assert train(without, tmp_path / "run", resume="auto") == "completed"


def test_a_device_that_is_not_there_is_refused_before_anything_is_written(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"machine\.device"):
        train(tiny_config(dataset, machine={"device": "cuda"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_policy_none_keeps_no_weights_but_the_final_evaluation(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 2}, checkpoint={"policy": "none"})
    assert train(config, tmp_path / "run") == "completed"
    assert find_checkpoints(tmp_path / "run") == []
    end = events(tmp_path / "run")[-1]
    assert isinstance(end, SessionEnd)
    assert end.state is not None
    assert len(list((tmp_path / "run" / "evaluations").iterdir())) == 1


def test_interval_checkpoints_and_one_final(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 6}, checkpoint={"policy": "interval", "interval": 3})
    train(config, tmp_path / "run")
    kinds = [
        (found.manifest.counters.step, found.manifest.kind) for found in find_checkpoints(tmp_path / "run")
    ]
    assert kinds == [(3, "interval"), (6, "final")]


def test_endless_skips_end_the_run_as_failed(dataset, tmp_path, monkeypatch):
    original = loop.forward
    monkeypatch.setattr(loop, "forward", lambda *given: original(*given) * float("nan"))
    config = tiny_config(dataset, limits={"consecutive_skips": 3})
    with pytest.raises(TrainingFailedError, match="3 attempts in a row"):
        train(config, tmp_path / "run")
    found = events(tmp_path / "run")
    assert [event.reason for event in found if isinstance(event, Overflow)] == ["nonfinite_loss"] * 3
    assert sessions(tmp_path / "run") == [("fresh", "failed")]
    assert (found[-1].step, found[-1].skipped, found[-1].tokens_seen) == (0, 3, 96)


def test_a_non_finite_gradient_is_a_reason_of_its_own(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "gradient_norm", _infinite_once())
    train(tiny_config(dataset, run={"target_step": 2}), tmp_path / "run")
    (skip,) = [event for event in events(tmp_path / "run") if isinstance(event, Overflow)]
    assert (skip.reason, skip.grad_norm) == ("nonfinite_grad", "Infinity")


def test_windows_are_counted_in_microbatches_and_attempts(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 4}, batch={"accumulation": 3})
    train(config, tmp_path / "run")
    windows = [event for event in events(tmp_path / "run") if isinstance(event, Train)]
    assert [(e.step, e.microbatches, e.tokens_seen) for e in windows] == [
        (1, 3, 96), (2, 6, 192), (3, 9, 288), (4, 12, 384),
    ]  # fmt: skip
    assert windows[-1].cursor["train"].epoch == 1
    assert windows[-1].cursor["train"].offset == 64


def test_accumulated_gradients_are_those_of_one_large_batch(dataset, tmp_path):
    parts = tiny_config(dataset, run={"target_step": 1}, batch={"micro_batch": 2, "accumulation": 2})
    whole = tiny_config(dataset, run={"target_step": 1}, batch={"micro_batch": 4, "accumulation": 1})
    train(parts, tmp_path / "parts")
    train(whole, tmp_path / "whole")
    one, other = updates(tmp_path / "parts")[1], updates(tmp_path / "whole")[1]
    assert one["loss"] == pytest.approx(other["loss"], rel=1e-6)
    assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-5)


def _infinite_once() -> Callable[[Any], Tensor]:
    calls = iter(range(10**6))

    def norm(parameters: Any) -> Tensor:
        return gradient_norm(parameters) * (float("inf") if next(calls) == 1 else 1.0)

    return norm


def test_a_vanished_latest_checkpoint_is_gone_around_only_on_purpose(dataset, tmp_path):
    policy = {"policy": "interval", "interval": 2}
    config = tiny_config(dataset, run={"target_step": 4}, checkpoint=policy)
    train(config, tmp_path / "damaged")
    checkpoints = tmp_path / "damaged" / "checkpoints"
    (checkpoints / "step-00000004-s01" / "manifest.json").unlink()
    before = _written(tmp_path / "damaged")
    for resume in ("auto", "latest"):
        with pytest.raises(EvidenceMissingError, match="step-00000004-s01"):
            train(config, tmp_path / "damaged", resume=resume)
    assert _written(tmp_path / "damaged") == before
    shutil.rmtree(checkpoints / "step-00000004-s01")
    train(config, tmp_path / "damaged", resume=str(checkpoints / "step-00000002-s01"))
    assert sessions(tmp_path / "damaged")[-1] == ("resume", "completed")


def test_an_empty_resume_is_a_mistake_of_its_own(dataset, tmp_path):
    with pytest.raises(UsageError, match="--resume is empty"):
        train(tiny_config(dataset), tmp_path / "run", resume="")


def test_a_dataset_that_is_not_there_on_resume_is_answered_with_how_to_name_it(tmp_path):
    with pytest.raises(EvidenceMissingError) as caught:
        train(tiny_config(tmp_path / "moved"), tmp_path / "run", resume="auto")
    assert "--set data.path=" in str(caught.value)


def test_a_run_document_that_cannot_be_read_is_answered_with_a_repair(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 2})
    train(config, tmp_path / "damaged")
    (tmp_path / "damaged" / "run.json").write_text("{")
    with pytest.raises(InvalidDocumentError, match=r"ledger repair .*damaged --apply"):
        train(config, tmp_path / "damaged", resume="auto")
