"""A split in memory, for tests of reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Stream:
    """Tokens that all differ as far as their type allows, in shards, with document ends."""

    def __init__(
        self, tokens: int, *, shard_tokens: int | None = None, document_ends: Sequence[int] = ()
    ) -> None:
        self.tokens = tokens
        self.reads = 0
        size = shard_tokens or tokens
        self.shard_tokens = [min(size, tokens - start) for start in range(0, tokens, size)]
        self._ends = np.array(sorted(document_ends), dtype=np.uint64)
        self._stream = (np.arange(tokens, dtype=np.uint64) * 2_654_435_761 % 60_000).astype(np.uint16)

    def read(self, start: int, *, count: int) -> NDArray[Any]:
        """Return tokens."""
        assert start >= 0
        assert count >= 1
        assert start + count <= self.tokens
        self.reads += 1
        return self._stream[start : start + count]

    def ends_in(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the document ends behind `start`, up to `stop`."""
        return self._ends[(self._ends > start) & (self._ends <= stop)]
