"""One pass over a source: documents go to their split, training through the shuffle, each to a sink that fills up.

What a sink holds depends on the order of its documents alone, never on how many are tokenized at once or how far
reading had gone when the other sink was full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from data_prep.shards import SplitWriter
from data_prep.shuffle import shuffled
from data_prep.sources import Document
from data_prep.split import Splitter
from data_prep.tokenizer import Tokenizer
from ledger.records.dataset import ShuffleRule

__all__ = ["Sink", "fill", "training_texts"]

_BATCH_BYTES: Final = 2**20
_BATCH_DOCUMENTS: Final = 1_024


class Sink:
    """Tokenizes the documents of one split in batches and keeps the first ones that reach its target."""

    def __init__(
        self,
        writer: SplitWriter,
        *,
        tokenizer: Tokenizer,
        target_tokens: int | None,
        advance: Callable[[int], object],
    ) -> None:
        self.writer = writer
        self.empty = 0
        self._tokenizer = tokenizer
        self._target = target_tokens
        self._advance = advance
        self._batch: list[Document] = []
        self._batch_bytes = 0

    def is_full(self) -> bool:
        """Tell whether the target is reached; a sink without one takes everything."""
        return self._target is not None and self.writer.tokens >= self._target

    def add(self, document: Document) -> None:
        """Take a document; it is dropped if those before it turn out to reach the target."""
        self._batch.append(document)
        self._batch_bytes += document.bytes
        if self._batch_bytes >= _BATCH_BYTES or len(self._batch) >= _BATCH_DOCUMENTS:
            self.flush()

    def flush(self) -> None:
        """Tokenize and write what was taken; an empty document is left out and counted."""
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        if self.is_full():
            return
        for encoded in self._tokenizer.encode(batch):
            if self.is_full():
                return
            if not encoded.document.bytes:
                self.empty += 1
                continue
            self.writer.add(encoded.ids, text_bytes=encoded.document.bytes)
            self._advance(encoded.ids.size)


def fill(
    documents: Iterable[Document],
    *,
    splitter: Splitter,
    shuffle: ShuffleRule,
    train: Sink,
    validation: Sink,
) -> None:
    """Read documents until both sinks are full or the source ends."""
    source = iter(documents)
    kept = _divert(source, splitter=splitter, validation=validation)
    for document in shuffled(kept, seed=shuffle.seed, buffer=shuffle.buffer):
        train.add(document)
        if train.is_full():
            break
    train.flush()
    if not validation.is_full():
        for _ in _divert(source, splitter=splitter, validation=validation):
            if validation.is_full():
                break
    validation.flush()


def training_texts(documents: Iterable[Document], *, splitter: Splitter, sample_bytes: int) -> Iterator[str]:
    """Yield the first training documents in source order that reach `sample_bytes`."""
    total = 0
    for document in documents:
        if splitter.assign(document.text.encode()) == "train":
            yield document.text
            total += document.bytes
            if total >= sample_bytes:
                return


def _divert(source: Iterator[Document], *, splitter: Splitter, validation: Sink) -> Iterator[Document]:
    """Yield training documents; hand those of validation over on the way."""
    for document in source:
        if splitter.assign(document.text.encode()) == "train":
            yield document
        elif not validation.is_full():
            validation.add(document)
