"""An interrupted run that is resumed is bit for bit the run that never stopped.

A kill is a copy of the run folder, made while it trains: exactly what a killed process leaves behind.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ledger.audit import reconcile
from ledger.checkpoints import find_checkpoints, read_trainer_state
from ledger.recorder import active
from ledger.recorder.evaluations import keep_evaluation
from ledger.records.documents import Evaluation
from ledger.records.events import Overflow
from ledger.storage.documents import read_document
from tests.trainer.kinds import EACH_KIND, KINDS, QUICK
from tests.trainer.records import assert_same_training, evaluations, events, sessions, updates
from tests.trainer.tiny import StopAfter, tiny_config, train
from trainer import loop

EPOCH = 10  # microbatches of the tiny dataset


class KilledError(Exception):
    pass


@dataclass(frozen=True)
class Kill:
    """Where a session is cut off: before its n-th microbatch is processed, or around the final evaluation."""

    microbatch: int | None = None
    final: str | None = None
    """`before` or `after` the final evaluation; the session's end is lost in both."""


@dataclass(frozen=True)
class Case:
    name: str
    kills: tuple[Kill, ...]
    sections: dict[str, dict[str, Any]] = field(default_factory=dict)


def _every(updates: int) -> dict[str, Any]:
    return {"checkpoint": {"policy": "interval", "interval": updates}}


FOURS: dict[str, Any] = {"batch": {"accumulation": 4}}
OTHERS: dict[str, Any] = {
    "model": {"tied": False, "kv_heads": 4},
    "optimizer": {"clip_norm": None, "fused": False},
}
CASES = [
    Case("in the middle of epoch 0", (Kill(6),), _every(2)),
    Case("one microbatch before an epoch's end", (Kill(EPOCH - 1),), _every(9)),
    Case("exactly at an epoch's end", (Kill(EPOCH),), _every(5)),
    Case("one microbatch after an epoch's end", (Kill(EPOCH + 1),), _every(11)),
    Case("in a later epoch", (Kill(2 * EPOCH + 6),), {"run": {"target_step": 28}, **_every(4)}),
    Case("twice, the second time across an epoch's end", (Kill(8), Kill(5)), _every(3)),
    Case("twice before progress was saved", (Kill(6), Kill(1)), _every(4)),
    Case("before the first checkpoint", (Kill(4),), _every(50)),
    Case("before the first update", (Kill(0),), _every(2)),
    Case("between final checkpoint and evaluation", (Kill(final="before"),), _every(9)),
    Case("between final evaluation and end", (Kill(final="after"),), {}),
    Case("inside a window across the epoch's end", (Kill(11),), {"batch": {"accumulation": 3}, **_every(3)}),
    Case("twice, by accumulation that does not divide the epoch", (Kill(14), Kill(8)), {**FOURS, **_every(2)}),
    Case("with evaluations between", (Kill(9),), {"evaluation": {"interval": 2, "batches": 1}, **_every(4)}),
    Case("with guards", (Kill(9),), {"guards": {"loss": {"factor": 1.01, "window": 3}}, **_every(3)}),
    Case("without prefetching", (Kill(6),), {"data": {"prefetch": 0}, **_every(2)}),
    Case("on a repeated source", (Kill(8),), {"data": {"repeat": 3}, **_every(4)}),
    Case("with another model and optimizer", (Kill(7),), {**OTHERS, **_every(3)}),
]  # fmt: skip


MATRIX = [
    pytest.param(
        case,
        kind,
        id=f"{case.name}, {name}",
        marks=[] if name == QUICK or case is CASES[0] else pytest.mark.slow,
    )
    for case in CASES
    for name, kind in KINDS.items()
]


@pytest.mark.parametrize(("case", "kind"), MATRIX)
def test_interrupted_and_resumed_is_never_stopped(case, kind, dataset, tmp_path, monkeypatch):
    sections = {"run": {"target_step": 14}, **kind, **case.sections}
    sections["optimizer"] = kind["optimizer"] | sections["optimizer"]
    config = tiny_config(dataset, **sections)
    train(config, tmp_path / "control")
    run = tmp_path / "run-0"
    resume = None
    for number, kill in enumerate(case.kills, start=1):
        run = _killed(
            monkeypatch, kill, config=config, run=run, copy=tmp_path / f"run-{number}", resume=resume
        )
        resume = "auto"
    status = train(config, run, resume="auto")
    assert status == ("closed" if case.kills[-1].final else "completed")
    assert [start for start, _ in sessions(run)] == ["fresh"] + ["auto"] * len(case.kills)
    assert_same_training(tmp_path / "control", run)


def test_a_non_finite_loss_is_skipped_the_same_way_after_a_resume(dataset, tmp_path, monkeypatch):
    _poison(monkeypatch, offsets={32, 64, 5 * 32})
    config = tiny_config(dataset, run={"target_step": 12}, **_every(3))
    train(config, tmp_path / "control")
    run = _killed(
        monkeypatch, Kill(7), config=config, run=tmp_path / "run", copy=tmp_path / "copy", resume=None
    )
    assert train(config, run, resume="auto") == "completed"
    assert_same_training(tmp_path / "control", run)
    last = events(run)[-1]
    assert (last.step, last.skipped, last.attempts) == (12, 6, 18)


def test_random_numbers_go_on_where_they_were(dataset, tmp_path, monkeypatch):
    original = loop.forward

    def noisy(training, batch):
        noise = random.random() + float(np.random.normal()) + torch.randn(())  # noqa: NPY002
        return original(training, batch) * (1 + 0.01 * noise)

    monkeypatch.setattr(loop, "forward", noisy)
    config = tiny_config(dataset, run={"target_step": 9}, evaluation={"interval": 2}, **_every(3))
    train(config, tmp_path / "control")
    run = _killed(
        monkeypatch, Kill(7), config=config, run=tmp_path / "run", copy=tmp_path / "copy", resume=None
    )
    assert train(config, run, resume="auto") == "completed"
    assert_same_training(tmp_path / "control", run)


def test_a_stop_right_after_a_skip_keeps_the_count_of_skips(dataset, tmp_path, monkeypatch):
    _poison(monkeypatch, offsets={5 * 32, 6 * 32})
    config = tiny_config(dataset, run={"target_step": 14})
    train(config, tmp_path / "control")
    assert train(config, tmp_path / "run", stop=StopAfter(attempts=5)) == "interrupted"
    (saved,) = find_checkpoints(tmp_path / "run")
    assert read_trainer_state(saved).consecutive_skips == 1
    assert train(config, tmp_path / "run", resume="auto") == "completed"
    skips = [event.consecutive for event in events(tmp_path / "run") if isinstance(event, Overflow)]
    assert skips == [1, 2, 1, 2]
    assert_same_training(tmp_path / "control", tmp_path / "run")


def test_a_stop_before_the_first_update_keeps_what_was_read(dataset, tmp_path, monkeypatch):
    _poison(monkeypatch, offsets={32, 64})
    config = tiny_config(dataset, run={"target_step": 4})
    train(config, tmp_path / "control")
    assert train(config, tmp_path / "run", stop=StopAfter(attempts=2)) == "interrupted"
    (saved,) = find_checkpoints(tmp_path / "run")
    assert (saved.manifest.counters.step, saved.manifest.counters.tokens_seen) == (0, 64)
    assert train(config, tmp_path / "run", resume="auto") == "completed"
    assert_same_training(tmp_path / "control", tmp_path / "run")


@pytest.mark.parametrize("attempts", [1, 9, 10, 11, 13])
def test_stopped_by_a_signal_and_resumed_is_never_stopped(dataset, tmp_path, attempts):
    config = tiny_config(dataset, run={"target_step": 14}, evaluation={"interval": 3})
    train(config, tmp_path / "control")
    assert train(config, tmp_path / "run", stop=StopAfter(attempts=attempts)) == "interrupted"
    (saved,) = find_checkpoints(tmp_path / "run")
    assert (saved.manifest.kind, saved.manifest.counters.attempts) == ("signal", attempts)
    assert train(config, tmp_path / "run", resume="latest") == "completed"
    assert_same_training(tmp_path / "control", tmp_path / "run")


def test_work_that_was_redone_from_an_older_checkpoint_is_the_same_again(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 12}, **_every(4))
    train(config, tmp_path / "control")
    train(config, tmp_path / "run")
    older = tmp_path / "run" / "checkpoints" / "step-00000004-s01"
    assert train(config, tmp_path / "run", resume=str(older)) == "completed"
    assert sessions(tmp_path / "run") == [("fresh", "completed"), ("resume", "completed")]
    assert updates(tmp_path / "run") == updates(tmp_path / "control")


@pytest.mark.parametrize("kind", EACH_KIND)
def test_forks_from_one_checkpoint_are_all_the_same(kind, dataset, tmp_path):
    config = tiny_config(dataset, **(kind | {"run": {"target_step": 9}} | _every(3)))
    train(config, tmp_path / "control")
    train(config, tmp_path / "run", stop=StopAfter(attempts=8))
    fork = tmp_path / "run" / "checkpoints" / "step-00000003-s01"
    train(config, tmp_path / "run", resume=str(fork), stop=StopAfter(attempts=4))
    assert train(config, tmp_path / "run", resume=str(fork)) == "completed"
    assert [start for start, _ in sessions(tmp_path / "run")] == ["fresh", "resume", "resume"]
    assert_same_training(tmp_path / "control", tmp_path / "run")


def test_killed_between_the_final_evaluation_s_file_and_its_event_it_is_measured_again(
    dataset, tmp_path, monkeypatch
):
    config = tiny_config(dataset, run={"target_step": 3})
    train(config, tmp_path / "control")

    def die(*given: Any, **named: Any) -> None:
        keep_evaluation(*given, **named)
        shutil.copytree(tmp_path / "run", tmp_path / "copy")
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(active, "keep_evaluation", die)
        with pytest.raises(KilledError):
            train(config, tmp_path / "run")
    assert len(list((tmp_path / "copy" / "evaluations").iterdir())) == 1
    assert train(config, tmp_path / "copy", resume="auto") == "closed"
    assert evaluations(tmp_path / "copy") == evaluations(tmp_path / "control")
    (first, second) = sorted((tmp_path / "copy" / "evaluations").iterdir())
    assert read_document(first, Evaluation).loss == read_document(second, Evaluation).loss
    assert reconcile(tmp_path / "copy").verdict == "passed"


def test_a_restart_is_the_same_run_again(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 5})
    train(config, tmp_path / "run")
    assert train(config, tmp_path / "run", restart=True) == "completed"
    assert sessions(tmp_path / "run") == [("fresh", "completed"), ("restart", "completed")]
    assert len(updates(tmp_path / "run")) == 5


def _killed(monkeypatch, kill: Kill, *, config, run: Path, copy: Path, resume: str | None) -> Path:
    """Train until the kill and return what it leaves."""

    def die(*_: object) -> None:
        shutil.copytree(run, copy)
        raise KilledError

    with monkeypatch.context() as patch:
        if kill.microbatch is not None:
            _call_at(patch, "forward", die, at=kill.microbatch)
        if kill.final == "before":
            patch.setattr(loop, "measure_final", die)
        if kill.final == "after":
            patch.setattr(loop, "measure_final", _first(loop.measure_final, then=die))
        with pytest.raises(KilledError):
            train(config, run, resume=resume)
    return copy


def _first(original: Callable[..., object], *, then: Callable[[], object]) -> Callable[..., None]:
    def both(*given: object) -> None:
        original(*given)
        then()

    return both


def _call_at(patch, name: str, action, *, at: int) -> None:
    """Call `action` instead of the n-th call (from 0) of a function of the loop."""
    original = getattr(loop, name)
    calls = iter(range(10**6))
    patch.setattr(loop, name, lambda *given: action() if next(calls) == at else original(*given))


def _poison(monkeypatch, *, offsets: set[int]) -> None:
    """Make the loss of the microbatches that end at these offsets of an epoch NaN."""
    original = loop.forward

    def forward(training, batch):
        loss = original(training, batch)
        return loss * float("nan") if batch.cursor["train"].offset in offsets else loss

    monkeypatch.setattr(loop, "forward", forward)
