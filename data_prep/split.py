"""Assigns documents to train or validation by a keyed hash of their exact text.

The assignment of a text depends on the text and the key alone: documents with the same text are never on both sides,
and adding sources moves nothing. (Near-duplicates are not detected.)
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

__all__ = ["SplitName", "Splitter"]

SplitName = Literal["train", "validation"]

_TAG: Final = b"ledger-split-v1\n"


class Splitter:
    """The rule: SHA-256 over a tag, the digest of the key and the text; its first 8 bytes decide."""

    def __init__(self, *, key: str, validation_fraction: float) -> None:
        """Send `validation_fraction` (from 0 to below 1) of distinct texts to validation."""
        self._threshold = int(validation_fraction * 2**64)
        self._keyed = hashlib.sha256(_TAG + hashlib.sha256(key.encode()).digest())

    def assign(self, text: bytes) -> SplitName:
        """Return the split of a document, given as its exact UTF-8 bytes."""
        digest = self._keyed.copy()
        digest.update(text)
        number = int.from_bytes(digest.digest()[:8], "big")
        return "validation" if number < self._threshold else "train"
