"""Writes the token stream of a split as ordered shards, with the ends of its documents beside them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.npy import write_array
from ledger.records.dataset import EndsFile, ShardEntry, SplitInventory, TokenDtype
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["SplitWriter", "WrittenSplit"]

ShardHook = Callable[[ShardEntry], object]
"""Told of every shard once it is on disk."""


@dataclass(frozen=True)
class WrittenSplit:
    """What stood in complete shards when a preparation was interrupted."""

    shards: list[ShardEntry]
    documents: int
    """Documents that were added whole before the last shard was cut."""
    tokens: int
    """Their tokens."""
    text_bytes: int
    """Their bytes of text."""


class SplitWriter:
    """Cuts one split's stream into shards of `shard_tokens`; documents may cross them.

    One shard is held in memory. An end is the position in the split behind a document's last token, and stands in
    the ends file of the shard that holds that token.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str,
        dtype: TokenDtype,
        shard_tokens: int,
        written: WrittenSplit | None = None,
        on_shard: ShardHook = lambda _: None,
        fs: FileSystem = OS,
    ) -> None:
        """Write new shards behind those that are `written`."""
        self._directory = directory
        self._name = name
        self._dtype = dtype
        self._fs = fs
        self._on_shard = on_shard
        self._buffer = np.empty(shard_tokens, dtype=dtype)
        self._filled = 0
        self._ends = array("Q")
        written = written or WrittenSplit([], 0, 0, 0)
        self._shards = list(written.shards)
        self._cut = sum(shard.tokens for shard in written.shards)
        self.documents = written.documents
        self.tokens = written.tokens
        self.text_bytes = written.text_bytes

    def add(self, ids: NDArray[Any], *, text_bytes: int) -> None:
        """Append a document, its end-of-text id included; what complete shards hold of it is not written again.

        Raises:
            StorageError: a shard could not be written.
        """
        start = self._cut + self._filled - self.tokens
        while start < ids.size:
            if self._filled == self._buffer.size:
                self._flush()
            count = min(ids.size - start, self._buffer.size - self._filled)
            self._buffer[self._filled : self._filled + count] = ids[start : start + count]
            self._filled += count
            start += count
        self.documents += 1
        self.tokens += ids.size
        self.text_bytes += text_bytes
        self._ends.append(self.tokens)

    def finish(self) -> SplitInventory | None:
        """Write what is left and return the inventory; null where no document was added."""
        if self._filled:
            self._flush()
        if not self._shards:
            return None
        return SplitInventory(
            documents=self.documents, tokens=self.tokens, bytes=self.text_bytes, shards=self._shards
        )

    def _flush(self) -> None:
        stem = f"{self._name}-{len(self._shards):05d}"
        tokens = self._buffer[: self._filled]
        size, sha256 = write_array(self._directory / f"{stem}.npy", tokens, dtype=self._dtype, fs=self._fs)
        entry = ShardEntry(
            file=f"{stem}.npy",
            tokens=self._filled,
            documents=len(self._ends),
            bytes=size,
            sha256=sha256,
            ends=self._write_ends(f"{stem}.ends.npy"),
        )
        self._shards.append(entry)
        self._cut += self._filled
        self._filled = 0
        self._ends = array("Q")
        self._on_shard(entry)

    def _write_ends(self, name: str) -> EndsFile | None:
        if not self._ends:
            return None
        ends = np.array(self._ends, dtype=np.uint64)
        _, sha256 = write_array(self._directory / name, ends, dtype="uint64", fs=self._fs)
        return EndsFile(file=name, sha256=sha256)
