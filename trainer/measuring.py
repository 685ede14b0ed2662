"""Measuring a checkpoint on its own: no session, nothing on the log; the answer that the training itself would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.audit.subject import find_run
from ledger.checkpoints import CompleteCheckpoint, read_checkpoint
from ledger.dataset.manifest import open_dataset
from ledger.errors import EvidenceMissingError, RefusedError
from ledger.recipes import recipe_differences
from ledger.recorder.evaluations import store_measurement
from ledger.recorder.opening import open_run, read_recipe
from ledger.records.documents import Evaluation
from ledger.records.layout import MANIFEST, parse_checkpoint_name
from ledger.storage.filesystem import OS
from trainer.checkpoint import restore_weights
from trainer.config import TrainerConfig
from trainer.environment import environment_record, prepare_machine
from trainer.evaluate import evaluate
from trainer.recipe import complete_config, recipe_of
from trainer.recorded import overridden
from trainer.state import build_state

__all__ = ["MeasureRequest", "Measured", "measure_checkpoint"]


@dataclass(frozen=True, kw_only=True)
class MeasureRequest:
    """What was asked for on the command line."""

    subject: Path
    """A run, whose latest checkpoint is measured, or a checkpoint."""
    split: str
    is_full: bool = False
    """The whole split; else the subset that the recipe evaluates on the way."""
    overrides: Sequence[str] = ()
    output: Path | None = None
    """Where the evaluation is written; None: into the run's `evaluations/`."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """An evaluation, what it is of, and where it was written."""

    checkpoint: CompleteCheckpoint
    evaluation: Evaluation
    path: Path


def measure_checkpoint(request: MeasureRequest) -> Measured:
    """Measure a checkpoint under the recipe that it was made under, and write the evaluation down.

    Raises:
        EvidenceMissingError: there is no checkpoint, no dataset or no such split.
        RefusedError: the dataset is another one, an override makes it another experiment, or the output exists.
        VerificationError: the checkpoint's weights are damaged.
    """
    checkpoint = _find_checkpoint(request.subject)
    config = _config(checkpoint, request.overrides)
    dataset = open_dataset(config.data.path)
    split = dataset.split(request.split)
    config = complete_config(config, dataset)
    prepare_machine(config)
    state = build_state(config)
    restore_weights(checkpoint, state)
    result = evaluate(
        state.model,
        split,
        config,
        data_sha256=dataset.metadata_sha256,
        batches=None if request.is_full else config.evaluation.batches,
    )
    evaluation, path = store_measurement(
        result, of=checkpoint, environment=environment_record(config), output=request.output
    )
    return Measured(checkpoint=checkpoint, evaluation=evaluation, path=path)


def _find_checkpoint(subject: Path) -> CompleteCheckpoint:
    if parse_checkpoint_name(subject.resolve().name) or OS.exists(subject / MANIFEST):
        return read_checkpoint(subject)
    opened = open_run(find_run(subject))
    latest = opened.latest() if opened.history.sessions else None
    if latest is None:
        raise EvidenceMissingError(
            "holds no checkpoint on its current branch",
            path=subject,
            expected="a run with a checkpoint, or a checkpoint's folder",
        )
    return latest


def _config(checkpoint: CompleteCheckpoint, overrides: Sequence[str]) -> TrainerConfig:
    run_dir = checkpoint.folder.resolve().parent.parent
    recipe = read_recipe(run_dir, checkpoint.manifest.recipe_sha256)
    config = overridden(recipe, overrides)
    changed = [
        str(found)
        for found in recipe_differences(recipe, recipe_of(config))
        if found.leaf_class == "identity"
    ]
    if changed:
        raise RefusedError(
            f"{len(changed)} setting(s) would make it another model or measurement: {'; '.join(changed)}",
            path=checkpoint.folder,
            expected="only operational and volatile settings, such as data.path or machine.device",
        )
    return config
