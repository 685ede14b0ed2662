"""Digests of what was read: of one microbatch, and of all of them in order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

__all__ = ["advance_data_chain", "microbatch_digest", "share_digest"]


def share_digest(sequences: NDArray[Any]) -> bytes:
    """Digest one data-parallel rank's share of a microbatch.

    Args:
        sequences: (sequences, length + 1) token ids in their stored type: every sequence's inputs followed by its
            last target.

    Returns:
        SHA-256 of their little-endian bytes, 32 raw bytes.
    """
    stored = sequences.astype(sequences.dtype.newbyteorder("<"), order="C", copy=False)
    return hashlib.sha256(stored.data).digest()


def microbatch_digest(shares: Iterable[bytes]) -> bytes:
    """Return SHA-256 over the ranks' digests in rank order, 32 raw bytes."""
    return hashlib.sha256(b"".join(shares)).digest()


def advance_data_chain(previous: str, *, digest: bytes) -> str:
    """Return `data_chain` behind a microbatch: SHA-256 of its value before and the microbatch's digest."""
    return hashlib.sha256(bytes.fromhex(previous) + digest).hexdigest()
