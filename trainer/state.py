"""The live training state: built from a recipe, captured for the records, digested.

A digest covers what is really in memory: tensors by their little-endian bytes, the rest in the form in which a
checkpoint stores it.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from ledger.errors import ConfigError
from ledger.recorder import LiveState
from ledger.records.documents import TensorEntry, TrainerState
from ledger.storage.digests import tensor_table_sha256
from trainer.config import TrainerConfig
from trainer.guards import Guards
from trainer.model.decoder import Decoder
from trainer.optim import Optimizer, Partition, partition
from trainer.precision import LossScaler
from trainer.randomness import capture_randomness, restore_randomness, seed_everything
from trainer.schedule import ScheduleState

__all__ = ["DTYPES", "TrainingState", "build_state", "tensor_bytes", "tensor_entry"]

DTYPES: Final[dict[torch.dtype, str]] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls the types a training state can hold."""

_WORTH_THREADS: Final = 1 << 22
"""Bytes of tensors from which starting threads pays."""


@dataclass(frozen=True, kw_only=True)
class TrainingState:
    """The objects that training changes, except for the reader of the data and the recorder's counters."""

    model: Decoder
    groups: Partition
    optimizer: Optimizer
    schedule: ScheduleState
    scaler: LossScaler
    guards: Guards

    def model_tensors(self) -> dict[str, Tensor]:
        """Return every tensor of the model by name; a tied head stands once."""
        return dict(self.model.named_parameters())

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """Return every tensor of the optimizer's state as `group/parameter/field`."""
        return self.optimizer.tensors()

    def capture(self) -> LiveState:
        """Return the state as the recorder takes it: digests of tensors, JSON of the rest."""
        return LiveState(
            model=_table_sha256(self.model_tensors()),
            optimizer=_table_sha256(self.optimizer_tensors()),
            schedule=self.schedule.capture(),
            rng=capture_randomness(),
            scaler=self.scaler.capture(),
            guards=self.guards.capture(),
        )

    def restore(self, stored: TrainerState) -> None:
        """Take everything that is no tensor from trainer.json, the cursor excepted."""
        self.schedule.restore(stored.schedule)
        self.scaler.restore(stored.scaler)
        self.guards.restore(stored.guards)
        restore_randomness(stored.rng)


def build_state(config: TrainerConfig) -> TrainingState:
    """Return the state that a run with this recipe begins with; seeds every generator first.

    Args:
        config: a resolved recipe (vocabulary and horizon are known).

    Raises:
        ConfigError: the model does not fit into this machine's memory.
    """
    seed_everything(config.run.seed)
    model = _build_model(config)
    groups = partition(model, has_muon=config.optimizer.muon is not None)
    return TrainingState(
        model=model,
        groups=groups,
        optimizer=Optimizer(groups, config.optimizer),
        schedule=ScheduleState(config),
        scaler=LossScaler(config.precision),
        guards=Guards(config.guards),
    )


def _build_model(config: TrainerConfig) -> Decoder:
    try:
        model = Decoder(config.model, sequence=config.batch.sequence)
        return model.to(torch.device(config.machine.device))
    except (RuntimeError, MemoryError) as error:  # what torch raises where memory, or a count, ends
        said = str(error).strip().splitlines()
        raise ConfigError(
            f"a model of this size cannot be made here: {said[0] if said else 'no memory'}",
            place="model",
            advice="make it smaller, or take a machine with more memory",
        ) from error


def tensor_entry(tensor: Tensor) -> TensorEntry:
    """Return type, shape and SHA-256 of a tensor's little-endian bytes."""
    digest = hashlib.sha256(tensor_bytes(tensor)).hexdigest()
    return TensorEntry(dtype=DTYPES[tensor.dtype], shape=list(tensor.shape), sha256=digest)


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return a tensor's little-endian bytes; a copy only where it is on another device or not contiguous."""
    stored = tensor.detach().cpu().contiguous()
    return stored.reshape(-1).view(torch.uint8).numpy().data


def _table_sha256(tensors: dict[str, Tensor]) -> str:
    if sum(tensor.nbytes for tensor in tensors.values()) < _WORTH_THREADS:
        return tensor_table_sha256({name: tensor_entry(tensor) for name, tensor in tensors.items()})
    with ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="ledger-tensors") as pool:
        return tensor_table_sha256(dict(zip(tensors, pool.map(tensor_entry, tensors.values()), strict=True)))
