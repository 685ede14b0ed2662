"""The law of shuffle groups: consecutive shards form a group, and the sequences of a group are read in another order.

A sequence belongs to the group that holds its first token. Groups keep the order of their files, so that memory is
bounded by two groups; within one the order follows from seed, epoch and the group's number alone. It therefore does
not depend on how far a run goes: a shorter run reads an exact prefix of a longer one.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

import numpy as np
from numpy.typing import NDArray

from ledger.errors import UsageError

__all__ = ["GroupTable", "Shuffle", "sequence_order"]


@dataclass(frozen=True)
class Shuffle:
    """How a source is shuffled."""

    group_shards: int
    """Consecutive shards of one group; the last group may have fewer."""
    seed: int

    def __post_init__(self) -> None:
        if self.group_shards < 1:
            raise UsageError(f"group_shards is {self.group_shards}", expected="at least 1")
        if self.seed < 0:
            raise UsageError(f"the seed of the shuffle is {self.seed}", expected="at least 0")


def sequence_order(*, seed: int, epoch: int, group: int, sequences: int) -> NDArray[np.intp]:
    """Return the numbers 0 to `sequences` - 1 in the order in which a group's sequences are read.

    Each sequence draws one number from `random.Random`, in file order; they are read by rising draws, equal draws
    in file order. `Random.random` after an integer seed is the one generator that Python promises to keep.
    """
    name = f"ledger-shuffle-v1\n{seed}\n{epoch}\n{group}"
    draw = Random(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")).random
    draws = np.fromiter((draw() for _ in range(sequences)), dtype=np.float64, count=sequences)
    return np.argsort(draws, kind="stable")


class GroupTable:
    """Which sequences each group of a source holds, in file order and counted over the whole source."""

    def __init__(
        self, shard_tokens: Sequence[int], *, group_shards: int, sequence: int, sequences: int
    ) -> None:
        """Cut the first `sequences` sequences of `sequence` tokens into groups of `group_shards` shards."""
        ends = list(accumulate(shard_tokens))
        begins = [0, *ends[group_shards - 1 : -1 : group_shards]]
        self._starts = [min(-(-begin // sequence), sequences) for begin in begins]
        self._end = sequences

    def group_of(self, slot: int) -> int:
        """Return the group that is read at a place of the epoch, counted in sequences."""
        return bisect_right(self._starts, slot) - 1

    def bounds(self, group: int) -> tuple[int, int]:
        """Return the first sequence of a group and the first behind it: its places in the epoch, too."""
        end = self._starts[group + 1] if group + 1 < len(self._starts) else self._end
        return self._starts[group], end
