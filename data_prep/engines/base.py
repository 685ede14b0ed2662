"""What an engine is: it takes batches of documents and hands their ids back, each when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from data_prep.byte_pairs import BytePairs
from data_prep.encoding import BackEndName, EncodedBatch, Encoder, EncodingRules
from data_prep.fast import FastBackEnd
from data_prep.native import LibraryBackEnd
from data_prep.sources.document import Document
from ledger.errors import LedgerError

__all__ = ["BATCHES_PER_WORKER", "EncoderSpec", "Engine", "Pending", "WorkerDiedError"]

BATCHES_PER_WORKER: Final = 2
"""Batches in flight for each worker: one that it works on and one that waits."""

Pending = Callable[[], EncodedBatch]
"""Waits for a batch and returns its ids; raises what encoding it raised, or `WorkerDiedError`."""


class WorkerDiedError(LedgerError):
    """A process that tokenized ended before its work was done, so the preparation cannot go on."""


@dataclass(frozen=True)
class EncoderSpec:
    """Everything that a worker needs to make an encoder."""

    data: bytes
    """The bytes of the tokenizer.json."""
    pairs: BytePairs | None
    """The same as byte pairs where the fast back end makes the same ids, else null."""
    rules: EncodingRules

    @property
    def backend(self) -> BackEndName:
        """The library that makes the ids."""
        return "tokenizers" if self.pairs is None else "tiktoken"

    def without_unused(self) -> EncoderSpec:
        """Return the spec without what its back end does not need: it is sent to every worker."""
        if self.pairs is None:
            return self
        return replace(self, pairs=replace(self.pairs, products={}))

    def build(self) -> Encoder:
        """Load the back end."""
        load = partial(LibraryBackEnd, self.data, path=self.rules.path, is_strict=True)
        return Encoder(
            load() if self.pairs is None else FastBackEnd(self.pairs, spare=load), rules=self.rules
        )


class Engine(Protocol):
    """Tokenizes batches; the order in which they are asked for is the caller's business."""

    name: str
    in_flight: int
    """Batches that may be submitted before the first one is asked for."""

    def load(self, spec: EncoderSpec) -> None:
        """Say what is to be loaded: once, before the first batch."""

    def submit(self, documents: Sequence[Document]) -> Pending:
        """Begin a batch."""

    def close(self) -> None:
        """End the workers; what is still in flight is dropped."""
