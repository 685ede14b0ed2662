from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ledger.audit import reconcile
from ledger.errors import RefusedError
from ledger.recorder import RunRecorder
from ledger.records.layout import LOG, RECIPE_LOCK
from ledger.records.locks import RecipeLock
from tests.ledger.audit.healthy import SMALL, kill_at, lock_of
from tests.support.toy import Killed, ToyLoop, ToySettings, begin, mortal, run_toy, train


@pytest.fixture
def lock(tmp_path: Path) -> RecipeLock:
    run_toy(tmp_path / "pilot", SMALL)
    return lock_of(SMALL, reconcile(tmp_path / "pilot", rehash=True), tmp_path / "pilot")


def run_locked(
    run: Path, settings: ToySettings, lock: RecipeLock | None, *, start: str = "fresh", before=None
) -> None:
    recorder = RunRecorder(run)
    with mortal(recorder):
        loop = ToyLoop(settings)
        begin(recorder, loop, start=start, recipe_lock=lock)  # type: ignore[arg-type]
        train(recorder, loop, *([before] if before else []))


def test_a_locked_run_holds_its_lock_and_reconciles(lock, tmp_path):
    run_locked(tmp_path / "run", SMALL, lock)
    assert (tmp_path / "run" / RECIPE_LOCK).exists()
    verdict = reconcile(tmp_path / "run")
    assert verdict.verdict == "passed"
    assert "LG603" in verdict.checked


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"learning_rate": 0.02}, "optimizer.learning_rate: 0.01 -> 0.02"),
        ({"target_step": 9}, "run.target_step: 6 -> 9"),
        ({"checkpoint_interval": 2}, "checkpoint.interval: 3 -> 2"),
    ],
)
def test_a_recipe_that_differs_from_the_lock_is_refused_before_anything_is_written(
    lock, tmp_path, changes, named
):
    with pytest.raises(RefusedError, match=named):
        run_locked(tmp_path / "run", dataclasses.replace(SMALL, **changes), lock)
    assert not (tmp_path / "run" / LOG).exists()
    assert not (tmp_path / "run" / RECIPE_LOCK).exists()


def test_a_later_session_is_held_to_the_lock_in_the_run(lock, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(Killed):
        run_locked(run, SMALL, lock, before=kill_at("microbatch", time=8))
    log = (run / LOG).read_bytes()
    with pytest.raises(RefusedError, match=r"logging\.interval"):
        run_locked(run, dataclasses.replace(SMALL, interval=2), None, start="auto")
    other = lock.model_copy(update={"tool_version": "1"})
    with pytest.raises(RefusedError, match="not started under this lock"):
        run_locked(run, SMALL, other, start="auto")
    assert (run / LOG).read_bytes() == log
    run_locked(run, SMALL, None, start="auto")
    assert reconcile(run).verdict == "passed"
