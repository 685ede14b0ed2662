"""Tensors of a checkpoint: writing them into the folder that the recorder commits, and restoring from one.

Weights and optimizer state are safetensors files, so nothing that is read can run code. Everything that is no tensor
stands in trainer.json, which the recorder writes. Every file's digest is checked before any of it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from ledger.checkpoints import CompleteCheckpoint, read_trainer_state, verify_checkpoint_files
from ledger.errors import RefusedError
from ledger.records.documents import TrainerState
from ledger.records.layout import MODEL_FILE, OPTIMIZER_FILE
from ledger.storage.safetensors import TensorInfo, read_header
from ledger.storage.tensor_files import TensorForm, read_tensors, write_safetensors
from trainer.state import DTYPES, TrainingState, tensor_bytes

__all__ = [
    "restore_checkpoint",
    "restore_weights",
    "write_tensors",
    "write_weights",
]


def write_tensors(folder: Path, state: TrainingState, *, metadata: Mapping[str, str]) -> None:
    """Write the model's and the optimizer's tensors, one at a time, into new files.

    Raises:
        StorageError: the system refused; what is there is nobody's checkpoint yet.
    """
    write_weights(folder, state, metadata=metadata)
    _write(folder / OPTIMIZER_FILE, state.optimizer_tensors(), metadata)


def write_weights(folder: Path, state: TrainingState, *, metadata: Mapping[str, str]) -> None:
    """Write the model's tensors alone; errors as `write_tensors`."""
    _write(folder / MODEL_FILE, state.model_tensors(), metadata)


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    write_safetensors(
        path,
        {name: TensorForm(DTYPES[tensor.dtype], tensor.shape) for name, tensor in tensors.items()},
        content=lambda name: tensor_bytes(tensors[name]),
        metadata=metadata,
    )


def restore_checkpoint(checkpoint: CompleteCheckpoint, state: TrainingState) -> TrainerState:
    """Put the whole training state back; the recorder then compares its digests with the saved ones.

    Returns:
        What trainer.json says; its cursor is where reading goes on.

    Raises:
        VerificationError: a file is absent or damaged.
        RefusedError: the checkpoint holds other tensors than this recipe's model and optimizer.
    """
    verify_checkpoint_files(checkpoint)
    stored = read_trainer_state(checkpoint)
    _restore_model(checkpoint.folder / MODEL_FILE, state)
    _restore_optimizer(checkpoint.folder / OPTIMIZER_FILE, state, step=stored.counters.step)
    state.restore(stored)
    return stored


def restore_weights(checkpoint: CompleteCheckpoint, state: TrainingState) -> None:
    """Put the weights of a checkpoint into the model and leave everything else as it is.

    Raises:
        VerificationError: a file is absent or damaged.
        RefusedError: the checkpoint holds other tensors than this recipe's model.
    """
    verify_checkpoint_files(checkpoint, names={MODEL_FILE})
    _restore_model(checkpoint.folder / MODEL_FILE, state)


@torch.no_grad()
def _restore_model(path: Path, state: TrainingState) -> None:
    targets = state.model_tensors()
    _load(path, targets, lambda name, value: targets[name].copy_(value))


def _restore_optimizer(path: Path, state: TrainingState, *, step: int) -> None:
    expected = state.optimizer.expected_tensors() if step else {}
    _load(path, expected, state.optimizer.restore_tensor)


def _load(path: Path, expected: Mapping[str, Tensor], put: Callable[[str, Tensor], object]) -> None:
    """Hand every tensor of a file to `put`, one at a time, after its name, type and shape were checked."""
    found = read_header(path).tensors
    _refuse_other_names(path, found=set(found), expected=set(expected))
    for name, template in expected.items():
        _refuse_other_form(path, name, found[name], template)
    for name, _, data in read_tensors(path):
        put(name, _tensor_of(data, expected[name]))


def _tensor_of(data: bytearray, template: Tensor) -> Tensor:
    """Return bytes as a tensor in memory of torch's own, since it may be kept."""
    if not data:
        return torch.empty(template.shape, dtype=template.dtype)
    return torch.frombuffer(data, dtype=template.dtype).reshape(template.shape).clone()


def _refuse_other_form(path: Path, name: str, found: TensorInfo, template: Tensor) -> None:
    expected = (DTYPES[template.dtype], tuple(template.shape))
    if (found.dtype, found.shape) != expected:
        raise RefusedError(
            f"tensor {name} is {found.dtype} {list(found.shape)}",
            path=path,
            expected=f"{expected[0]} {list(expected[1])}, as the recipe's model has it",
        )


def _refuse_other_names(path: Path, *, found: set[str], expected: set[str]) -> None:
    if found == expected:
        return
    lacking, foreign = sorted(expected - found)[:5], sorted(found - expected)[:5]
    raise RefusedError(
        f"holds other tensors than this recipe's: it lacks {lacking or 'none'} and has {foreign or 'none'} besides",
        path=path,
        expected=f"{len(expected)} tensors",
        advice="resume with the recipe that the checkpoint was saved under",
    )
