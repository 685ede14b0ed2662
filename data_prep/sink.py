"""What becomes of the documents of one split: stored, or left out for a reason that is counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from data_prep.encoding import EncodedBatch
from data_prep.seen import SeenTexts
from data_prep.shards import SplitWriter
from data_prep.sources.document import Document
from ledger.errors import InvalidDocumentError
from ledger.records.dataset import LengthRule

__all__ = ["Batch", "LeftOut", "Sink", "SinkRules"]

LeftOut = Literal["empty", "too_long", "duplicate"]
"""Why a document is not stored. Each is counted once, for the first of these that applies."""

_Fate = Literal["encode", "stored", "empty", "too_long", "duplicate"]


@dataclass(frozen=True)
class SinkRules:
    """Which documents of a split are stored, and how many of them."""

    length: LengthRule
    deduplicate: bool
    target_tokens: int | None
    """The documents that reach it are the last; null: all there are."""


@dataclass
class Batch:
    """Documents in the order of their split, and what is known of each before it is tokenized."""

    items: list[tuple[Document, _Fate]] = field(default_factory=list)
    bytes: int = 0

    @property
    def to_encode(self) -> list[Document]:
        """Those that have to be tokenized."""
        return [document for document, fate in self.items if fate == "encode"]


class Sink:
    """Collects the documents of one split in batches and stores the first ones that reach its target.

    `taken` documents are behind it from a preparation that was interrupted: they are counted again, not tokenized.
    """

    def __init__(
        self,
        writer: SplitWriter,
        *,
        rules: SinkRules,
        taken: int = 0,
        too_many_tokens: int = 0,
        advance: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.writer = writer
        self.batch = Batch()
        self.shared = 0
        """Documents whose text the other split holds too, those with too many tokens included."""
        self.taken = 0
        """Documents done with."""
        self.too_many_tokens = too_many_tokens
        self._rules = rules
        self._advance = advance
        self._resumed = taken
        self._added = 0
        self._left_out: dict[LeftOut, int] = {"empty": 0, "too_long": 0, "duplicate": 0}
        self._seen = SeenTexts()
        self._stored: SeenTexts | None = None
        self._other: SeenTexts | None = None

    @property
    def left_out(self) -> dict[LeftOut, int]:
        """Documents left out so far, by reason."""
        return self._left_out | {"too_long": self._left_out["too_long"] + self.too_many_tokens}

    def is_full(self) -> bool:
        """Tell whether the target is reached; a sink without one takes everything."""
        target = self._rules.target_tokens
        return self.taken >= self._resumed and target is not None and self.writer.tokens >= target

    def remember_texts(self) -> None:
        """Remember what is stored from now on, for `mark_shared`."""
        self._stored = SeenTexts()

    def mark_shared(self, other: Sink) -> None:
        """Count from now on what is stored here although `other` stored the same text."""
        self._other = other._stored

    def add(self, document: Document) -> None:
        """Take a document; it is dropped if those before it turn out to reach the target."""
        fate = self._fate(document)
        if fate == "encode":
            self.batch.bytes += document.bytes
            if self._added < self._resumed:
                fate = "stored"
        self._added += 1
        self.batch.items.append((document, fate))

    def take_batch(self) -> Batch:
        """Return what was added since the last batch."""
        batch, self.batch = self.batch, Batch()
        return batch

    def store(self, batch: Batch, encoded: EncodedBatch) -> None:
        """Store a batch, up to the document that reaches the target.

        Raises:
            InvalidDocumentError: a document is too long, and that is an error.
            StorageError: a shard could not be written.
        """
        start, lengths = 0, iter(encoded.lengths)
        for document, fate in batch.items:
            if self.is_full():
                return
            if fate == "encode":
                length = next(lengths)
                self._note(document)
                if not self._exceeds_tokens(document, length):
                    self.writer.add(encoded.ids[start : start + length], text_bytes=document.bytes)
                    self._advance(length)
                start += length
            elif fate == "stored":
                self._note(document)
            else:
                self._leave_out(document, reason=fate)
            self.taken += 1

    def _fate(self, document: Document) -> _Fate:
        if not document.data:
            return "empty"
        limit = self._rules.length.max_bytes
        if limit is not None and document.bytes > limit:
            return "too_long"
        if self._rules.deduplicate and not self._seen.add(document.data):
            return "duplicate"
        return "encode"

    def _note(self, document: Document) -> None:
        if self._stored is not None:
            self._stored.add(document.data)
        if self._other is not None and document.data in self._other:
            self.shared += 1

    def _exceeds_tokens(self, document: Document, tokens: int) -> bool:
        limit = self._rules.length.max_tokens
        if limit is None or tokens <= limit:
            return False
        if self._rules.length.overflow == "error":
            _refuse_length(document, found=f"{tokens} tokens", limit=f"limits.max_tokens, {limit}")
        self.too_many_tokens += 1
        return True

    def _leave_out(self, document: Document, *, reason: LeftOut) -> None:
        if reason == "too_long" and self._rules.length.overflow == "error":
            limit = f"limits.max_bytes, {self._rules.length.max_bytes}"
            _refuse_length(document, found=f"{document.bytes} bytes", limit=limit)
        self._left_out[reason] += 1


def _refuse_length(document: Document, *, found: str, limit: str) -> None:
    problem = f"this document has {found}, more than {limit}"
    advice = "raise the limit, split the document, or set limits.overflow=skip to leave such ones out"
    raise InvalidDocumentError(problem, path=document.path, place=document.place, advice=advice)
