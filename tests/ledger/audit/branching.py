"""Honest runs that begin at a checkpoint of another run, which lies beside them under their name and `-parent`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ledger.checkpoints import read_checkpoint
from ledger.recorder import RunRecorder
from ledger.records.parts import BranchMode
from tests.support.toy import Before, Killed, ToyLoop, ToySettings, mortal, plan_of, run_toy, train

PARENT = ToySettings(target_step=6, checkpoint_interval=3)
PARENT_CHECKPOINT = "checkpoints/step-00000003-s01"


def parent_of(run_dir: Path) -> Path:
    """Return where the parent of a branched run lies."""
    return run_dir.with_name(f"{run_dir.name}-parent")


def begin_branch(recorder: RunRecorder, loop: ToyLoop, checkpoint: Path, *, mode: BranchMode) -> None:
    """Start a run at another run's checkpoint."""
    parent = read_checkpoint(checkpoint)
    if mode == "continue":
        loop.restore(parent)
    else:
        loop.restore_tensors(parent.folder)
        loop.updates = 0
    recorder.start(plan_of(loop, start="branch", parent=parent, mode=mode), capture=loop.capture)


def branch_toy(
    run_dir: Path,
    settings: ToySettings,
    checkpoint: Path,
    *,
    mode: BranchMode,
    before: Before = lambda _recorder, _moment: None,
) -> None:
    """Train a toy run from another run's checkpoint to its target."""
    loop = ToyLoop(settings)
    recorder = RunRecorder(run_dir)
    with mortal(recorder):
        begin_branch(recorder, loop, checkpoint, mode=mode)
        train(recorder, loop, before)


def continued(run_dir: Path) -> None:
    """Goes on where its parent stood in mid-run, and is resumed once."""
    run_toy(parent_of(run_dir), PARENT)
    settings = dataclasses.replace(PARENT, target_step=9)

    def kill(recorder: RunRecorder, moment: str) -> None:
        if moment == "attempt" and recorder.step == 7:
            raise Killed

    try:
        branch_toy(run_dir, settings, parent_of(run_dir) / PARENT_CHECKPOINT, mode="continue", before=kill)
    except Killed:
        run_toy(run_dir, settings, start="auto")


def initialised(run_dir: Path) -> None:
    """Takes its parent's weights alone, for another experiment."""
    run_toy(parent_of(run_dir), PARENT)
    settings = dataclasses.replace(PARENT, target_step=4, learning_rate=0.02, accumulation=3)
    branch_toy(run_dir, settings, parent_of(run_dir) / PARENT_CHECKPOINT, mode="initialise")


BRANCHED: dict[str, Callable[[Path], None]] = {make.__name__: make for make in (continued, initialised)}
