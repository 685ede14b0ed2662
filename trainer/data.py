"""Training batches as tensors; the order of reading and the cursor are `ledger.dataset`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ledger.dataset.manifest import Dataset
from ledger.dataset.order import Geometry
from ledger.dataset.reader import SequentialReader
from ledger.records.parts import Cursor
from trainer.config import TrainerConfig

__all__ = ["SOURCE", "Batch", "TrainingData", "token_tensor"]

SOURCE: Final = "train"
"""Name of the training split, in the dataset and in cursors."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One microbatch on the device, with the cursor that stands behind it."""

    inputs: Tensor
    """(micro_batch, sequence) ids."""
    targets: Tensor
    """(micro_batch, sequence) ids to predict."""
    tokens: int
    """Target positions."""
    digest: bytes
    """SHA-256 of what was read, raw."""
    cursor: Cursor
    """Where reading goes on once this batch is consumed."""


class TrainingData:
    """The training split in microbatches, without end."""

    def __init__(self, dataset: Dataset, config: TrainerConfig) -> None:
        geometry = Geometry(config.batch.micro_batch, config.batch.sequence)
        self._reader = SequentialReader(
            dataset.split(SOURCE), source=SOURCE, geometry=geometry, repeat=config.data.repeat
        )
        self._device = torch.device(config.machine.device)

    @property
    def cursor(self) -> Cursor:
        """Where the next microbatch begins."""
        return self._reader.cursor

    @property
    def tokens_per_epoch(self) -> int:
        """Target positions of one pass."""
        return self._reader.order.usable_tokens

    def restore(self, cursor: Cursor) -> None:
        """Go on reading where a checkpoint's cursor says."""
        self._reader.restore(cursor)

    def next(self) -> Batch:
        """Return the next microbatch."""
        read = self._reader.next()
        return Batch(
            inputs=token_tensor(read.inputs, self._device),
            targets=token_tensor(read.targets, self._device),
            tokens=read.tokens,
            digest=read.digest,
            cursor=read.cursor,
        )


def token_tensor(ids: NDArray[Any], device: torch.device) -> Tensor:
    """Return ids of any stored type as int64 on the device."""
    return torch.from_numpy(ids.astype(np.int64)).to(device)
