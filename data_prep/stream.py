"""One pass over a source: documents go to their split, training through the shuffle, each to a sink that fills up.

What a sink holds depends on the order of its documents alone, never on how many are tokenized at once, by how many
workers, or how far reading had gone when the sink was full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from data_prep.encoding import nothing_encoded
from data_prep.engines.base import Engine, Pending
from data_prep.shuffle import shuffled
from data_prep.sink import Batch, Sink
from data_prep.sources.document import Document
from data_prep.split import Splitter
from ledger.errors import InvalidDocumentError, LedgerError
from ledger.records.dataset import ShuffleRule

__all__ = ["Conveyor", "fill", "training_texts"]

BATCH_BYTES: Final = 2**20
BATCH_DOCUMENTS: Final = 1_024


class _SourceError(Exception):
    """Carries an error of a source past everything that only passes documents on."""

    def __init__(self, error: LedgerError) -> None:
        super().__init__(str(error))
        self.error = error


class Conveyor:
    """Carries batches to the engine and back: a bounded number in flight, taken in the order they were sent."""

    def __init__(self, engine: Engine, *, documents: int | None = None) -> None:
        """Fill batches with at most `documents`, or as many as is usual."""
        self._engine = engine
        self._documents = documents or BATCH_DOCUMENTS
        self._flying: deque[tuple[Sink, Batch, Pending]] = deque()

    def add(self, document: Document, *, to: Sink) -> None:
        """Put a document into the sink's batch and send that when it is large enough."""
        to.add(document)
        if to.batch.bytes >= BATCH_BYTES or len(to.batch.items) >= self._documents:
            self.send(to)

    def send(self, sink: Sink) -> None:
        """Send what the sink holds, taking results first where too many batches are in flight."""
        while len(self._flying) >= self._engine.in_flight:
            self._take()
        batch = sink.take_batch()
        if batch.items and not sink.is_full():
            documents = batch.to_encode
            pending = self._engine.submit(documents) if documents else nothing_encoded
            self._flying.append((sink, batch, pending))

    def drain(self) -> None:
        """Take every result that is still in flight."""
        while self._flying:
            self._take()

    def _take(self) -> None:
        sink, batch, pending = self._flying.popleft()
        if not sink.is_full():
            sink.store(batch, pending())
            return
        with suppress(InvalidDocumentError):  # nobody asks any more what is wrong with these documents
            pending()


def fill(
    documents: Iterable[Document],
    *,
    splitter: Splitter | None,
    shuffle: ShuffleRule,
    train: Sink,
    validation: Sink,
    conveyor: Conveyor,
    held_out: Iterable[Document] | None = None,
) -> None:
    """Read documents until both sinks are full or the source ends.

    An error of the source counts only if the documents before it do not fill the sinks: how far reading is ahead of
    the results must not decide whether a preparation succeeds.

    Args:
        documents: the source.
        splitter: says which of them are held out; null: none is.
        shuffle: the order of training documents.
        train: takes these.
        validation: takes those that are held out.
        conveyor: tokenizes for both.
        held_out: a source of its own for validation, read first.
    """
    try:
        if held_out is not None:
            validation.remember_texts()
            _carry(_guarded(held_out), to=validation, conveyor=conveyor)
            conveyor.send(validation)
            conveyor.drain()
            train.mark_shared(validation)
        _feed(
            _guarded(documents),
            splitter=splitter,
            shuffle=shuffle,
            train=train,
            validation=validation,
            conveyor=conveyor,
        )
    except _SourceError as failure:
        _settle(train, validation, conveyor=conveyor)
        if not (train.is_full() and validation.is_full()):
            raise failure.error from failure.error.__cause__
    _settle(train, validation, conveyor=conveyor)


def training_texts(
    documents: Iterable[Document], *, splitter: Splitter | None, sample_bytes: int
) -> Iterator[str]:
    """Yield the first training documents in source order that reach `sample_bytes`; all are without a splitter."""
    total = 0
    for document in documents:
        if splitter is None or splitter.assign(document.data) == "train":
            yield document.text
            total += document.bytes
            if total >= sample_bytes:
                return


def _feed(
    documents: Iterable[Document],
    *,
    splitter: Splitter | None,
    shuffle: ShuffleRule,
    train: Sink,
    validation: Sink,
    conveyor: Conveyor,
) -> None:
    kept = iter(documents)
    if splitter is not None:
        kept = _divert(documents, splitter=splitter, validation=validation, conveyor=conveyor)
    ordered = shuffled(
        kept,
        seed=shuffle.seed,
        buffer=shuffle.buffer,
        buffer_bytes=shuffle.buffer_bytes,
        size=lambda document: document.bytes,
    )
    _carry(ordered, to=train, conveyor=conveyor)
    if splitter is None:
        return
    while not validation.is_full():
        if next(kept, None) is None:
            return


def _carry(documents: Iterable[Document], *, to: Sink, conveyor: Conveyor) -> None:
    """Add documents to a sink until it is full."""
    for document in documents:
        if to.is_full():
            return
        conveyor.add(document, to=to)


def _divert(
    source: Iterable[Document], *, splitter: Splitter, validation: Sink, conveyor: Conveyor
) -> Iterator[Document]:
    """Yield training documents; hand those of validation over on the way."""
    for document in source:
        if splitter.assign(document.data) == "train":
            yield document
        elif not validation.is_full():
            conveyor.add(document, to=validation)


def _settle(train: Sink, validation: Sink, *, conveyor: Conveyor) -> None:
    conveyor.send(train)
    conveyor.send(validation)
    conveyor.drain()


def _guarded(documents: Iterable[Document]) -> Iterator[Document]:
    try:
        yield from documents
    except LedgerError as error:
        raise _SourceError(error) from error
