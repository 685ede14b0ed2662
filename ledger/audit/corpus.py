"""The dataset that a run read, as far as it is at hand: what an epoch holds, and what stands at a position."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ledger.audit.track import Track
from ledger.dataset.manifest import METADATA_NAME, Dataset, Split, open_dataset
from ledger.dataset.order import Geometry, ReadingOrder
from ledger.dataset.reader import microbatch_at
from ledger.errors import EvidenceMissingError, LedgerError
from ledger.laws.batches import usable_tokens
from ledger.records.parts import Position

__all__ = ["Corpus", "RunReader", "epoch_tokens"]

TRAIN: Final = "train"

ORDERS: Final = ("shuffle", "mix", "sources")
"""What in a recipe's data section would make the order another one than the stream's."""


class Corpus:
    """A dataset at the path given or at the one that a recipe states; it may be absent, broken or another one.

    Only the dataset that the run started with is ever read: another one would say nothing about it.
    """

    def __init__(self, given: Path | None) -> None:
        self._given = given
        self.path = given
        self.dataset: Dataset | None = None
        self.error: LedgerError | None = None
        """Why a dataset that lies there cannot be opened."""
        self.other_sha256: str | None = None
        """The identity of the dataset that lies there, if it is not the run's."""

    def attend(self, track: Track) -> None:
        """Look for the dataset of a session, unless it was found already."""
        data = None if track.sections is None else track.sections.data
        path = self._given or (Path(data.path) if data is not None and data.path else None)
        if self.dataset is not None or path is None or not os.path.lexists(path / METADATA_NAME):
            return
        self.path, self.error, self.other_sha256 = path, None, None
        try:
            dataset = open_dataset(path)
        except LedgerError as error:
            self.error = error
            return
        if dataset.metadata_sha256 == track.start.data.train:
            self.dataset = dataset
        else:
            self.other_sha256 = dataset.metadata_sha256

    @property
    def absence(self) -> str | None:
        """Why the bytes of the dataset cannot be looked at; None if they can."""
        if self.dataset is not None:
            return None
        if self.error is not None:
            return f"the dataset at {self.path} cannot be opened"
        if self.other_sha256 is not None:
            return f"the dataset at {self.path} is another one"
        if self._given is not None:
            return f"there is no dataset at {self._given}"
        return "the dataset does not lie where the recipe says; give it with --data"

    def split_of(self, source: str, *, sources: int) -> Split | None:
        """Return the split that a source of the cursor reads."""
        if self.dataset is None:
            return None
        splits = self.dataset.manifest.splits
        name = source if source in splits else TRAIN
        return self.dataset.split(name) if name in splits and (sources == 1 or name == source) else None


def epoch_tokens(track: Track, *, source: str, sources: int, corpus: Corpus) -> int | None:
    """Return the tokens of one epoch of a source; None where neither recipe nor dataset says."""
    size = track.start.tokens_per_microbatch
    sections = track.sections
    if (
        sections is not None
        and sections.data is not None
        and sections.data.repeat is not None
        and sources == 1
    ):
        return sections.data.repeat * size
    split = corpus.split_of(source, sources=sources)
    if split is None or sections is None:
        return None
    return usable_tokens(tokens=split.tokens, tokens_per_microbatch=size) or None


class RunReader:
    """Reads again what a run says it read: microbatch digests from the shards."""

    def __init__(self, split: Split, *, source: str, order: ReadingOrder) -> None:
        self._split = split
        self._source = source
        self.order = order

    @classmethod
    def of(cls, track: Track, *, corpus: Corpus) -> RunReader | str:
        """Return a reader for the sequential source of a run, or why there can be none."""
        if corpus.absence is not None:
            return corpus.absence
        if len(track.start.cursor) != 1:
            return "the run reads a mix of sources"
        (source,) = track.start.cursor
        split = corpus.split_of(source, sources=1)
        data = track.config.get("data")
        if isinstance(data, Mapping) and any(data.get(key) for key in ORDERS):
            return "the recipe reads its data in an order that this version does not follow"
        batch = track.config.get("batch")
        micro_batch = batch.get("micro_batch") if isinstance(batch, Mapping) else None
        micro_batch = micro_batch if isinstance(micro_batch, int) else 0
        rows = micro_batch * track.start.data_parallel
        if split is None or rows < 1 or track.start.tokens_per_microbatch % rows:
            return "the recipe does not state a micro batch that divides the tokens per microbatch"
        repeat = track.sections.data.repeat if track.sections and track.sections.data else None
        geometry = Geometry(
            micro_batch=micro_batch,
            sequence=track.start.tokens_per_microbatch // rows,
            data_parallel=track.start.data_parallel,
        )
        try:
            order = ReadingOrder(split.tokens, geometry, repeat)
        except EvidenceMissingError as error:
            return str(error)
        return cls(split, source=source, order=order)

    def digest_at(self, position: Position) -> str | LedgerError:
        """Return the first 16 hexadecimal digits of the microbatch digest at a position, or why it cannot be read."""
        try:
            batch = microbatch_at(self._split, source=self._source, order=self.order, position=position)
        except LedgerError as error:
            return error
        return batch.digest.hex()[:16]
