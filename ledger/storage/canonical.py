"""Canonical JSON (RFC 8785) and digests over it: the form in which documents are stored and hashed."""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785

from ledger.errors import InvalidDocumentError

__all__ = ["canonical_json", "digest_of", "sha256_hex"]


def canonical_json(value: Any) -> bytes:
    """Return the RFC 8785 form of a JSON value: UTF-8, keys sorted, no spaces, one spelling of each number.

    Raises:
        InvalidDocumentError: the value holds something that JSON cannot, such as a non-finite number, an integer
            beyond 2^53 - 1, a lone surrogate or a key that is no text.
    """
    try:
        return rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidDocumentError(
            f"this value cannot be written as JSON: {reason}",
            advice='write a non-finite measurement as "NaN", "Infinity" or "-Infinity"',
        ) from error


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 digest of bytes in 64 lower-case hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_of(value: Any) -> str:
    """Return the SHA-256 digest of a JSON value's RFC 8785 form.

    Raises:
        InvalidDocumentError: as `canonical_json`.
    """
    return sha256_hex(canonical_json(value))
