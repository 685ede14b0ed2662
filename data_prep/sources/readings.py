"""What was really read of a source's files, to tell at the end whether that is what identifies them.

A file that changes and changes back while it is read has the same digest before and after. So every reading takes a
digest of its own on the way: of the bytes, where they are read in sequence; of the texts, where a format is read back
and forth. The latter is compared only where the system says that the file was touched since.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger.storage.digests import hash_file
from ledger.storage.files import real_path
from ledger.storage.filesystem import OS

if TYPE_CHECKING:  # what a worker process loads stays small
    import os

    from ledger.records.dataset import SourceFile

__all__ = ["BUFFER_BYTES", "Reading", "WatchedBytes", "same_bytes", "same_texts"]

BUFFER_BYTES: Final = 2**18

_Stamp = tuple[int, int, int, int, int]


class Reading:
    """One reading of a file from its start: what it gave, up to where it was left.

    It counts bytes, where they are read in sequence, or texts.
    """

    __slots__ = ("_digest", "_sha256", "_stamp", "count")

    def __init__(self) -> None:
        self._digest: hashlib._Hash | None = hashlib.sha256()
        self._sha256 = ""
        self._stamp: _Stamp | None = None
        self.count = 0

    @property
    def sha256(self) -> str:
        """The digest of what was read so far."""
        return self._sha256 if self._digest is None else self._digest.hexdigest()

    def end(self) -> None:
        """Keep the result alone, which takes little memory: there may be a reading for each of a million files."""
        self._sha256, self._digest = self.sha256, None

    def add_bytes(self, data: bytes | memoryview) -> None:
        """Take in the next bytes of the file."""
        self._going().update(data)
        self.count += len(data)

    def add_text(self, data: bytes) -> None:
        """Take in the next text of the file."""
        going = self._going()
        going.update(len(data).to_bytes(8, "little"))
        going.update(data)
        self.count += 1

    def _going(self) -> hashlib._Hash:
        if self._digest is None:
            raise RuntimeError("this reading has ended")
        return self._digest

    def stamp(self, descriptor: int, *, path: Path) -> Reading:
        """Remember which file is open, before anything of it is read; return this reading, now one of texts."""
        self._stamp = _stamp(OS.fstat(descriptor, path=path))
        return self

    @property
    def is_of_texts(self) -> bool:
        """Whether it counts texts, not bytes."""
        return self._stamp is not None

    def is_of(self, path: Path) -> bool:
        """Tell whether a path still names the file that was read, and nothing was written to it since."""
        return self._stamp == _stamp(OS.stat(real_path(path)))


class WatchedBytes(io.RawIOBase):
    """An open file read in sequence; everything that it gives is taken in by a reading."""

    def __init__(self, file: io.RawIOBase, *, reading: Reading) -> None:
        super().__init__()
        self._file = file
        self._reading = reading

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Read the next bytes."""
        count = self._file.readinto(buffer) or 0
        self._reading.add_bytes(memoryview(buffer)[:count])
        return count

    def close(self) -> None:
        """Close it."""
        self._file.close()
        super().close()


def same_bytes(reading: Reading, *, path: Path, now: SourceFile) -> bool:
    """Tell whether a reading gave what a file, whose identity is `now`, begins with; raises what reading it raises."""
    if reading.count == now.bytes:
        return reading.sha256 == now.sha256
    return hash_file(real_path(path), limit=reading.count) == (reading.count, reading.sha256)


def same_texts(reading: Reading, texts: Iterable[bytes]) -> bool:
    """Tell whether a reading gave the first of these texts."""
    again = Reading()
    for text in islice(texts, reading.count):
        again.add_text(text)
    return (again.count, again.sha256) == (reading.count, reading.sha256)


def _stamp(found: os.stat_result) -> _Stamp:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
