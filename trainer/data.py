"""Training batches as tensors; the order of reading and the cursor are `ledger.dataset`'s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ledger.dataset.background import BackgroundVerification, VerifiedFile, files_to_verify
from ledger.dataset.order import Geometry
from ledger.dataset.packing import DocumentLayout
from ledger.dataset.prefetch import PrefetchingReader
from ledger.records.parts import Cursor
from trainer.config import TrainerConfig
from trainer.sources import TRAIN_SPLIT, DataSources, reading_rule

__all__ = ["IGNORED", "Batch", "TrainingData", "counted_targets", "document_tensor", "token_tensor"]

IGNORED = -100
"""Target of a position that does not count in the loss; torch's own default."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One microbatch on the device, with the cursor that stands behind it."""

    inputs: Tensor
    """(micro_batch, sequence) ids."""
    targets: Tensor
    """(micro_batch, sequence) ids to predict; `IGNORED` where the loss does not count."""
    documents: Tensor | None
    """(micro_batch, sequence) number of the document that each input belongs to; None: attend to all."""
    tokens: int
    """Target positions."""
    loss_tokens: int
    """Target positions that count in the loss."""
    digest: bytes
    """SHA-256 of what was read, raw."""
    cursor: Cursor
    """Where reading goes on once this batch is consumed."""


class TrainingData:
    """The training text in microbatches, without end; optionally rehashed in the background."""

    def __init__(self, sources: DataSources, config: TrainerConfig) -> None:
        geometry = Geometry(config.batch.micro_batch, config.batch.sequence)
        splits = {name: dataset.split(TRAIN_SPLIT) for name, dataset in sources.sources.items()}
        reader = reading_rule(config.data).reader(splits, geometry=geometry)
        self.tokens_per_epoch = {name: source.order.usable_tokens for name, source in reader.sources.items()}
        """Target positions of one pass over each source."""
        ahead = config.data.prefetch
        self._reader = PrefetchingReader(reader, ahead=ahead) if ahead else reader
        self._device = torch.device(config.machine.device)
        self._verification = _verification_of(sources) if config.data.verify else None

    @property
    def cursor(self) -> Cursor:
        """Where each source goes on."""
        return self._reader.cursor

    def restore(self, cursor: Cursor) -> None:
        """Go on reading where a checkpoint's cursor says."""
        self._reader.restore(cursor)

    def begin_verification(self) -> None:
        """Start to rehash the files in the background, where the configuration asks for it."""
        if self._verification is not None:
            self._verification.start()

    def verified(self) -> list[VerifiedFile]:
        """Return the files that were rehashed since the last call; raises where one is damaged."""
        return [] if self._verification is None else self._verification.drain()

    def next(self) -> Batch:
        """Return the next microbatch."""
        read = self._reader.next()
        return Batch(
            inputs=token_tensor(read.inputs, self._device),
            targets=counted_targets(read.targets, read.layout, self._device),
            documents=document_tensor(read.layout, self._device),
            tokens=read.tokens,
            loss_tokens=read.loss_tokens,
            digest=read.digest,
            cursor=read.cursor,
        )

    def close(self) -> None:
        """End the threads that read ahead and verify."""
        if self._verification is not None:
            self._verification.close()
        self._reader.close()


def token_tensor(ids: NDArray[Any], device: torch.device) -> Tensor:
    """Return ids of any stored type as int64 on the device."""
    return torch.from_numpy(ids.astype(np.int64)).to(device)


def counted_targets(ids: NDArray[Any], layout: DocumentLayout | None, device: torch.device) -> Tensor:
    """Return targets as int64 on the device, `IGNORED` where the layout says that the loss does not count."""
    targets = ids.astype(np.int64)
    if layout is not None:
        targets[~layout.counted] = IGNORED
    return torch.from_numpy(targets).to(device)


def document_tensor(layout: DocumentLayout | None, device: torch.device) -> Tensor | None:
    """Return the number of each input's document on the device; None where documents are not told apart."""
    return None if layout is None else torch.from_numpy(layout.documents).to(device)


def _verification_of(sources: DataSources) -> BackgroundVerification:
    files = {
        file.path: file
        for name, dataset in sources.sources.items()
        for file in files_to_verify(dataset, prefix=f"{name}/" if sources.is_mix else "")
    }
    return BackgroundVerification(files.values())
