"""The real trainer as a scenario of the fault suite: what it writes into a checkpoint, tensors included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledger.checkpoints import find_checkpoints, verify_checkpoint_files
from ledger.storage.filesystem import OS, FileSystem
from tests.support.faults import diverted
from tests.support.faults_checks import check_passed
from tests.trainer.records import final_tensors
from tests.trainer.tiny import tiny_config, train, write_dataset

TARGET_STEP = 2


def data_beside(place: Path) -> None:
    """Begin with a dataset, and no run."""
    place.mkdir(exist_ok=True)
    write_dataset(place / "data")


def train_to_a_checkpoint(place: Path, fs: Any) -> None:
    """Train to the target, whose checkpoint is what is watched."""
    fs.watch(only=lambda path: "/checkpoints" in path)
    finish_training(place, fs)
    fs.promise(place / "run" / "checkpoints" / f"step-{TARGET_STEP:08}-s01")
    fs.unwatch()


def finish_training(place: Path, fs: FileSystem = OS) -> None:
    """Train to the target from wherever the records stand."""
    config = tiny_config(
        place / "data",
        run={"target_step": TARGET_STEP},
        data={"prefetch": 0, "verify": False},  # no thread meets a fault of its own
        evaluation={"interval": None},
    )
    with diverted(fs):
        train(config, place / "run", resume="auto")


def trained(place: Path, control: Path) -> list[str]:
    """Check a training that reached its target: it passes, and its tensors are the control's."""
    run = place / "run"
    for checkpoint in find_checkpoints(run):
        verify_checkpoint_files(checkpoint)
    problems = check_passed(run, rehash=False)  # the dataset is of random tokens, which end no documents
    if final_tensors(run) != final_tensors(control / "run"):
        problems.append("other tensors than the control's")
    return problems
