"""Digests of the blocks of a file: they tell where in it damage lies, which one digest of the whole cannot."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ledger.records.dataset import BLOCK_BYTES
from ledger.storage.files import opened_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath

__all__ = ["block_digests", "damaged_ranges"]


def block_digests(path: StrPath, *, fs: FileSystem = OS) -> list[str]:
    """Return the SHA-256 of every block of a file; the last one may be shorter than the others.

    Raises:
        LedgerError: the file is missing, no regular file, or could not be read.
    """
    digests: list[str] = []
    with opened_regular_file(path, fs=fs) as descriptor:
        offset = 0
        while True:
            digest, count = hashlib.sha256(), 0
            while part := fs.pread(descriptor, min(2**20, BLOCK_BYTES - count), offset + count, path=path):
                digest.update(part)
                count += len(part)
            if not count:
                return digests
            digests.append(digest.hexdigest())
            offset += count


def damaged_ranges(path: StrPath, *, digests: Sequence[str]) -> list[tuple[int, int]]:
    """Return the byte ranges, from and to, whose blocks are not what they were; neighbours are one range."""
    found = block_digests(path)
    found += [""] * (len(digests) - len(found))
    ranges: list[tuple[int, int]] = []
    for index, (now, then) in enumerate(zip(found, digests, strict=False)):
        begin, end = index * BLOCK_BYTES, (index + 1) * BLOCK_BYTES
        if now == then:
            continue
        if ranges and ranges[-1][1] == begin:
            begin = ranges.pop()[0]
        ranges.append((begin, end))
    return ranges
