"""Remembers which texts were seen, in bounded memory: the latest digests there, the others in a temporary database.

A digest is 16 bytes of the SHA-256 of a text: two of 100 million texts share one with a probability of 1 in 10^22. A
million of them are held in memory, about 100 MB; behind that they lie in a file that SQLite makes in the folder for
temporary files (SQLITE_TMPDIR, else TMPDIR), about 30 bytes each, and that vanishes with the process however it ends.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Final

from ledger.errors import StorageError

__all__ = ["SeenTexts"]

_HELD: Final = 1_000_000
_CACHE_KIB: Final = 64 * 1024
_DIGEST_BYTES: Final = 16


class SeenTexts:
    """A set of texts."""

    def __init__(self, *, held: int = _HELD) -> None:
        """Hold at most `held` digests in memory."""
        self._held = held
        self._recent: set[bytes] = set()
        self._older: sqlite3.Connection | None = None

    def __contains__(self, text: bytes) -> bool:
        """Tell whether a text was added; raises StorageError where the database cannot be read."""
        return self._knows(_digest(text))

    def add(self, text: bytes) -> bool:
        """Add a text and tell whether it is new.

        Raises:
            StorageError: the database cannot be read or written.
        """
        digest = _digest(text)
        if self._knows(digest):
            return False
        self._recent.add(digest)
        if len(self._recent) >= self._held:
            self._put_aside()
        return True

    def _knows(self, digest: bytes) -> bool:
        if digest in self._recent:
            return True
        if self._older is None:
            return False
        try:
            return (
                self._older.execute("SELECT 1 FROM seen WHERE digest = ?", (digest,)).fetchone() is not None
            )
        except sqlite3.Error as error:
            raise _refused(error) from error

    def _put_aside(self) -> None:
        """Move what is in memory to the database, in its order there, which writes each page once."""
        try:
            if self._older is None:
                self._older = _open()
            rows = ((digest,) for digest in sorted(self._recent))
            self._older.execute("BEGIN")
            self._older.executemany("INSERT INTO seen VALUES (?)", rows)
            self._older.execute("COMMIT")
        except sqlite3.Error as error:
            raise _refused(error) from error
        self._recent.clear()


def _open() -> sqlite3.Connection:
    database = sqlite3.connect("", isolation_level=None)  # no name: a file of its own that nobody else sees
    database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    database.execute("PRAGMA journal_mode = OFF")
    database.execute("PRAGMA synchronous = OFF")
    database.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
    return database


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()[:_DIGEST_BYTES]


def _refused(error: sqlite3.Error) -> StorageError:
    advice = "free some space in the folder for temporary files, or set TMPDIR to a larger one"
    return StorageError(f"the digests of texts seen so far could not be kept: {error}", advice=advice)
