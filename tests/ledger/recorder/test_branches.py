"""Runs that begin at a checkpoint of another run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.checkpoints import CompleteCheckpoint, read_checkpoint
from ledger.errors import EvidenceMissingError, RefusedError, UsageError, VerificationError
from ledger.recorder import RunRecorder
from ledger.records.documents import RunDocument
from ledger.records.events import Amendment, SessionStart
from ledger.records.parts import ZERO, DataIdentities, Position
from ledger.storage.documents import read_document
from ledger.storage.log_reader import read_log
from tests.support.toy import (
    DATA_SHA256,
    Killed,
    ToyLoop,
    ToySettings,
    attempt,
    mortal,
    plan_of,
    run_toy,
    save,
    train,
)

SETTINGS = ToySettings(target_step=6, accumulation=1, checkpoint_interval=2, evaluate_every=None)


@pytest.fixture
def parent(tmp_path) -> CompleteCheckpoint:
    """Return a checkpoint in the middle of a finished run, whose number in the epoch is no boundary."""
    run_toy(tmp_path / "parent", SETTINGS)
    return read_checkpoint(tmp_path / "parent" / "checkpoints" / "step-00000004-s01")


def branch(
    run: Path,
    parent: CompleteCheckpoint,
    *,
    mode: str = "continue",
    settings: ToySettings = SETTINGS,
    start: str = "branch",
    body: Callable[[RunRecorder, ToyLoop], object] = train,
    **changes: Any,
) -> None:
    """Start a session from the parent and do `body` in it."""
    loop, recorder = ToyLoop(settings), RunRecorder(run)
    loop.restore(parent)
    if mode == "initialise":
        loop.draws, loop.updates, loop.position = 0, 0, Position(0, 0)
    with mortal(recorder):
        plan = plan_of(loop, start=start, parent=parent, mode=mode, **changes)
        recorder.start(plan, capture=loop.capture)
        body(recorder, loop)


def events(run: Path) -> list[Any]:
    return [line.event for line in read_log(run / "metrics.jsonl")]


def die(recorder: RunRecorder, loop: ToyLoop) -> None:
    attempt(recorder, loop)
    raise Killed


def test_a_continued_run_is_its_parent_going_on(run_dir, parent, tmp_path):
    branch(run_dir, parent)
    last, control = events(run_dir)[-1], events(tmp_path / "parent")[-1]
    assert last.counters == control.counters
    chains = [event.data_chain for event in events(run_dir) if hasattr(event, "data_chain")]
    assert chains[-1] == [e.data_chain for e in events(tmp_path / "parent") if hasattr(e, "data_chain")][-1]
    document = read_document(run_dir / "run.json", RunDocument)
    assert document.parent is not None
    assert (document.parent.mode, document.parent.manifest_sha256) == ("continue", parent.manifest_sha256)
    assert document.planned_tokens == 2 * 8
    assert (run_dir / "parent" / "manifest.json").read_bytes() == (
        parent.folder / "manifest.json"
    ).read_bytes()
    assert reconcile(run_dir).verdict == "passed"


def test_an_initialised_run_takes_the_weights_and_begins_at_0(run_dir, parent):
    branch(run_dir, parent, mode="initialise", settings=dataclasses.replace(SETTINGS, learning_rate=0.5))
    first = events(run_dir)[0]
    assert isinstance(first, SessionStart)
    assert (first.counters, first.state.model) == (ZERO, parent.manifest.state.model)
    assert reconcile(run_dir).verdict == "passed"


@pytest.mark.parametrize("mode", ["continue", "initialise"])
@pytest.mark.parametrize("start", ["auto", "restart"])
def test_killed_before_its_first_checkpoint_it_begins_at_the_parent_again(run_dir, parent, mode, start):
    with pytest.raises(Killed):
        branch(run_dir, parent, mode=mode, body=die)
    branch(run_dir, parent, mode=mode, start=start)
    assert reconcile(run_dir).verdict == "passed"


def test_killed_behind_a_checkpoint_it_goes_on_from_there(run_dir, parent):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        save(recorder, loop, "interval")
        raise Killed

    with pytest.raises(Killed):
        branch(run_dir, parent, body=body)
    run_toy(run_dir, SETTINGS, start="auto")
    assert reconcile(run_dir).verdict == "passed"


def test_a_parent_at_the_target_leaves_only_the_closing(run_dir, parent):
    branch(run_dir, parent, settings=dataclasses.replace(SETTINGS, target_step=4))
    assert events(run_dir)[-1].status == "closed"
    assert (run_dir / "checkpoints" / "step-00000004-s01").is_dir()
    assert reconcile(run_dir).verdict == "passed"


def test_what_it_changes_is_stated(run_dir, parent):
    branch(run_dir, parent, settings=dataclasses.replace(SETTINGS, target_step=8, interval=2))
    stated = {
        event.field: (event.from_, event.to) for event in events(run_dir) if isinstance(event, Amendment)
    }
    assert stated == {"run.target_step": (6, 8), "logging.interval": (1, 2)}
    assert reconcile(run_dir).verdict == "passed"


def test_what_defines_the_experiment_stays_when_it_continues(run_dir, parent):
    with pytest.raises(RefusedError, match="but for its schedule") as caught:
        branch(run_dir, parent, settings=dataclasses.replace(SETTINGS, learning_rate=0.5, clip_norm=None))
    assert "optimizer.learning_rate" in str(caught.value)
    assert "optimizer.clip_norm" in str(caught.value)
    with pytest.raises(RefusedError, match="reads the data"):
        branch(run_dir, parent, data=DataIdentities(train="0" * 64, validation=DATA_SHA256))
    assert not (run_dir / "metrics.jsonl").exists()


def test_a_parent_beyond_the_target_is_refused(run_dir, parent):
    with pytest.raises(RefusedError, match="beyond the target 3"):
        branch(run_dir, parent, settings=dataclasses.replace(SETTINGS, target_step=3))


def test_other_weights_than_the_parent_s_are_refused(run_dir, parent):
    loop = ToyLoop(SETTINGS)
    with RunRecorder(run_dir) as recorder:
        plan = plan_of(loop, start="branch", parent=parent, mode="initialise")
        with pytest.raises(VerificationError, match="in: model"):
            recorder.start(plan, capture=loop.capture)


def test_a_branch_starts_again_from_its_own_parent_alone(run_dir, parent, tmp_path):
    with pytest.raises(Killed):
        branch(run_dir, parent, body=die)
    other = read_checkpoint(tmp_path / "parent" / "checkpoints" / "step-00000002-s01")
    with pytest.raises(RefusedError, match=parent.manifest_sha256):
        branch(run_dir, other, start="auto")
    with pytest.raises(RefusedError, match="continue"):
        branch(run_dir, parent, mode="initialise", start="auto")
    with pytest.raises(EvidenceMissingError, match="--branch"):
        run_toy(run_dir, SETTINGS, start="restart")


def test_a_run_of_its_own_becomes_no_branch(run_dir, parent):
    run_toy(run_dir, SETTINGS)
    with pytest.raises(RefusedError, match="a run of its own"):
        branch(run_dir, parent, start="restart")


@pytest.mark.parametrize("start", ["fresh", "resume", "auto"])
def test_a_new_run_from_another_s_checkpoint_starts_as_a_branch(run_dir, parent, start):
    with pytest.raises(UsageError, match="expected 'branch'"):
        branch(run_dir, parent, start=start)


@pytest.mark.parametrize("name", ["manifest.json", "recipe"])
def test_a_damaged_parent_is_named(run_dir, parent, name):
    recipe = parent.folder.parent.parent / "recipes" / f"{parent.manifest.recipe_sha256}.json"
    path = recipe if name == "recipe" else parent.folder / name
    path.write_bytes(path.read_bytes().replace(b"{", b"{ ", 1))
    with pytest.raises(VerificationError, match=path.name):
        branch(run_dir, parent)
    assert not (run_dir / "metrics.jsonl").exists()


def test_a_checkpoint_that_was_copied_out_of_its_run_has_no_recipe(run_dir, parent):
    (parent.folder.parent.parent / "recipes" / f"{parent.manifest.recipe_sha256}.json").unlink()
    with pytest.raises(EvidenceMissingError, match="inside its run"):
        branch(run_dir, parent)
