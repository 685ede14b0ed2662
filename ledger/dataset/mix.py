"""The law of a mix: which source each microbatch reads, from declared weights, a seed and the microbatch's number.

Microbatch i (from 0, counted over the whole run) has the draw u in [0, 1): the 64-bit little-endian word number
i mod 1024 of SHAKE-256 over `ledger-mix-v1`, the seed and i div 1024, each on a line; its upper 53 bits over 2^53.
It reads the first source, by name, whose cumulative share of the weights exceeds u. The counts of the sources
therefore follow from the number of microbatches alone, whoever counts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ledger.errors import UsageError
from ledger.storage.canonical import digest_of

__all__ = ["MixLaw", "mix_sha256"]

_BLOCK: Final = 1024


class MixLaw:
    """The choice of a source for each microbatch of a run."""

    def __init__(self, weights: Mapping[str, float], *, seed: int) -> None:
        """Take the weights, which need not add up to one.

        Raises:
            UsageError: there is no source, or a weight is not positive and finite.
        """
        if not weights or not all(0 < weight < float("inf") for weight in weights.values()):
            raise UsageError(f"the weights of the mix are {dict(weights)}", expected="positive numbers")
        self.names = tuple(sorted(weights))
        """The sources; choices are indices into it."""
        self._seed = seed
        exact = [Fraction(weights[name]) for name in self.names]
        total = sum(exact)
        self._bounds = np.array([float(share / total) for share in accumulate(exact)][:-1])

    def source_at(self, microbatch: int) -> str:
        """Return the source that a microbatch reads."""
        block, place = divmod(microbatch, _BLOCK)
        return self.names[int(self._choices_of_block(block)[place])]

    def choices(self, start: int, *, count: int) -> NDArray[np.intp]:
        """Return the index of the source of each of `count` microbatches from `start` on."""
        first, last = start // _BLOCK, -(-(start + count) // _BLOCK)
        blocks = [self._choices_of_block(block) for block in range(first, last)]
        joined = np.concatenate(blocks) if blocks else np.empty(0, dtype=np.intp)
        return joined[start - first * _BLOCK :][:count]

    def counts(self, start: int, *, count: int) -> dict[str, int]:
        """Return how many of `count` microbatches from `start` on read each source."""
        totals = np.zeros(len(self.names), dtype=np.int64)
        for begin in range(start, start + count, 2**20):
            part = self.choices(begin, count=min(2**20, start + count - begin))
            totals += np.bincount(part, minlength=len(self.names))
        return dict(zip(self.names, totals.tolist(), strict=True))

    def _choices_of_block(self, block: int) -> NDArray[np.intp]:
        return np.searchsorted(self._bounds, _draws(self._seed, block), side="right")


@lru_cache(maxsize=8)
def _draws(seed: int, block: int) -> NDArray[np.float64]:
    stream = hashlib.shake_256(f"ledger-mix-v1\n{seed}\n{block}".encode()).digest(8 * _BLOCK)
    words: NDArray[np.uint64] = np.frombuffer(stream, dtype="<u8") >> np.uint64(11)
    return words.astype(np.float64) * 2.0**-53


def mix_sha256(identities: Mapping[str, str]) -> str:
    """Return the identity of a mix: SHA-256 of the RFC 8785 map source name → `metadata_sha256`."""
    return digest_of(dict(identities))
