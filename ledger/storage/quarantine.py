"""Torn tails: what a crash left behind the last newline is copied aside, synced, and only then cut off."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ledger.errors import StorageError, VerificationError
from ledger.records.layout import LOG, QUARANTINE
from ledger.storage.atomic import create_file
from ledger.storage.damage import damage_error
from ledger.storage.digests import hash_file
from ledger.storage.files import ensure_folder, opened_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.lock import claim_log
from ledger.storage.log_reader import FileIdentity, LogReader, LogTail, read_log

__all__ = ["QuarantinedTail", "list_quarantined", "quarantine_tail"]

_TAIL_NAME: Final = re.compile(r"tail-[0-9]{16}-[0-9a-f]{16}\.bin")
_BLOCK_BYTES: Final = 1 << 20


class QuarantinedTail(NamedTuple):
    """A torn tail in quarantine; `file` is its path inside the run folder."""

    bytes: int
    sha256: str
    file: str


def quarantine_tail(run_dir: StrPath, *, log_name: str = LOG, fs: FileSystem = OS) -> QuarantinedTail | None:
    """Move the log's torn tail into `quarantine/`; returns `None` when it has none. The caller holds the lock.

    The copy is on the device before a byte is cut, and doing it again after a crash in between ends the same way.

    Raises:
        EvidenceMissingError: there is no log.
        VerificationError: the log is damaged otherwise; then nothing is touched.
        NewerVersionError: a newer version of the ledger wrote to it.
        UnsafeError: something that is no regular file stands in its place.
        LockedError: a writer has the log open.
        StorageError: the system refused, or the log changed meanwhile.
    """
    run_dir = Path(run_dir)
    path = run_dir / log_name
    with read_log(path, fs=fs) as reader:
        tail = _find_tail(reader, path)
    if tail is None:
        return None
    file = f"{QUARANTINE}/tail-{tail.offset:016d}-{tail.sha256[:16]}.bin"
    ensure_folder(run_dir / QUARANTINE, fs=fs)
    with opened_regular_file(path, flags=os.O_RDWR, fs=fs) as descriptor:
        claim_log(descriptor, path=path, fs=fs)
        _require_unchanged(reader, descriptor, path, fs=fs)
        create_file(run_dir / file, _read_tail(descriptor, tail, path, fs=fs), fs=fs)
        _require_unchanged(reader, descriptor, path, fs=fs)
        fs.truncate(descriptor, tail.offset, path=path)
        fs.sync(descriptor, path=path)
    return QuarantinedTail(tail.bytes, tail.sha256, file)


def list_quarantined(run_dir: StrPath, *, fs: FileSystem = OS) -> list[QuarantinedTail]:
    """Return the tails that lie in a run's quarantine, in the order of their place in the log.

    Raises:
        UnsafeError, StorageError: a file there cannot be read.
    """
    folder = Path(run_dir) / QUARANTINE
    if not fs.exists(folder):
        return []
    found = []
    for name in fs.list_directory(folder):
        if _TAIL_NAME.fullmatch(name):
            digest = hash_file(folder / name, fs=fs)
            found.append(QuarantinedTail(digest.bytes, digest.sha256, f"{QUARANTINE}/{name}"))
    return found


def _find_tail(reader: LogReader, path: Path) -> LogTail | None:
    """Read the log to its end and insist that nothing but its tail is damaged."""
    for line in reader:
        if line.problem is not None:
            raise damage_error(line, path)
    tail = reader.tail
    if tail is not None and tail.problem is not None:
        raise VerificationError(
            tail.problem,
            path=path,
            place=f"byte {tail.offset:,}",
            advice="nothing was changed; restore the original",
        )
    return tail


def _read_tail(descriptor: int, tail: LogTail, path: Path, *, fs: FileSystem) -> Iterator[bytes]:
    """Yield the tail in blocks and insist, before the last, that it is what was found before."""
    digest = hashlib.sha256()
    offset, end = tail.offset, tail.offset + tail.bytes
    while offset < end:
        block = fs.pread(descriptor, min(_BLOCK_BYTES, end - offset), offset, path=path)
        offset += len(block)
        digest.update(block)
        if not block or (offset == end and digest.hexdigest() != tail.sha256):
            raise _changed(path)
        yield block


def _require_unchanged(reader: LogReader, descriptor: int, path: Path, *, fs: FileSystem) -> None:
    status = fs.fstat(descriptor, path=path)
    if FileIdentity(status.st_dev, status.st_ino) != reader.identity or status.st_size != reader.size:
        raise _changed(path)


def _changed(path: Path) -> StorageError:
    return StorageError(
        "the log changed while its tail was moved aside",
        path=path,
        advice="something else writes to it: nothing was cut off; find out what, then run this again",
    )
