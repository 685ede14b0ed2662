"""Which files a stage's verification covered, by size and times: what did not change since need not be read again.

A file that anything writes to changes its times. One whose bytes rot under the file system does not: `--rehash` reads
everything. A snapshot is no record: without one, or with one that cannot be read, everything is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ledger.errors import LedgerError
from ledger.records.layout import LOCK
from ledger.storage.atomic import is_temporary_name, replace_file
from ledger.storage.canonical import canonical_json, sha256_hex
from ledger.storage.digests import hash_file
from ledger.storage.files import files_below, read_regular_file
from ledger.storage.filesystem import OS
from ledger.storage.strict_json import parse_json

__all__ = ["DigestCache", "Snapshot", "is_unchanged", "keep_snapshot", "take_snapshot"]

SNAPSHOT: Final = ".verified.json"
OUTPUT: Final = "output.log"
_MAX_BYTES: Final = 2**26
_LEFT_OUT: Final = frozenset({SNAPSHOT, OUTPUT, LOCK})
"""What is no evidence: it may change at any time."""

Snapshot = dict[str, str]
"""Path of each file → its size and times, in one text."""


def take_snapshot(folders: Iterable[Path]) -> Snapshot:
    """Return sizes and times of every file below some folders, but for locks, outputs and temporary files."""
    return {
        str(folder / name): _state(OS.stat(folder / name))
        for folder in folders
        for name in files_below(folder, leaves_out=lambda name: name == "logs")
        if (base := name.rpartition("/")[2]) not in _LEFT_OUT and not is_temporary_name(base)
    }


def keep_snapshot(folder: Path, snapshot: Snapshot) -> None:
    """Note in a stage's folder that all of this was verified."""
    replace_file(folder / SNAPSHOT, canonical_json(snapshot))


def is_unchanged(folder: Path, snapshot: Snapshot) -> bool:
    """Tell whether this is what was verified last."""
    return bool(snapshot) and _read(folder / SNAPSHOT) == snapshot


class DigestCache:
    """Digests of files, kept with sizes and times so that a file is read only once as long as nothing writes to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = _read(path)
        self._is_new = False

    def sha256(self, file: Path) -> str:
        """Return a file's digest.

        Raises:
            EvidenceMissingError, UnsafeError, StorageError: as `hash_file`.
        """
        key = str(file.absolute())
        found = OS.look(file.resolve())
        state = "" if found is None else _state(found)
        before, _, digest = self._known.get(key, "").rpartition(" ")
        if not digest or before != state:
            digest = hash_file(file.resolve()).sha256
            self._known[key] = f"{state} {digest}"
            self._is_new = True
        return digest

    def of_list(self, files: Iterable[tuple[str, Path]]) -> str:
        """Return one digest of names and contents of files, in their order."""
        return sha256_hex(canonical_json([[name, self.sha256(path)] for name, path in files]))

    def keep(self) -> None:
        """Write what is new."""
        if self._is_new:
            replace_file(self._path, canonical_json(self._known))
            self._is_new = False


def _state(found: os.stat_result) -> str:
    return f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def _read(path: Path) -> Snapshot:
    if not OS.exists(path):
        return {}
    try:
        found = parse_json(read_regular_file(path, max_bytes=_MAX_BYTES), path=path)
    except LedgerError:
        return {}
    is_one = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if is_one else {}
