"""The journal of a preparation: which shards are complete, so that a killed preparation can go on behind them.

It lies in the temporary folder, one line for each shard, written once the shard is on disk, and goes before the folder
gets its final name. It vouches for a file by its digest; what it does not vouch for is written again. A torn last line
is what a crash leaves, and ends the journal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from data_prep.shards import WrittenSplit
from ledger.errors import LedgerError
from ledger.records.base import Record
from ledger.records.dataset import ShardEntry
from ledger.records.fields import Count, Name, Sha256
from ledger.storage.atomic import replace_file
from ledger.storage.canonical import canonical_json
from ledger.storage.digests import hash_file
from ledger.storage.files import read_regular_file
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["JOURNAL_NAME", "Journal", "JournalHead", "ShardLine", "has_shards", "read_head", "resume_journal"]

JOURNAL_NAME: Final = "journal.jsonl"
_MAX_BYTES: Final = 2**28


class JournalHead(Record):
    """What a journal belongs to: with another plan, tokenizer or library nothing of it can be used."""

    plan_sha256: Sha256
    tokenizer_sha256: Sha256
    canary_sha256: Sha256


class ShardLine(Record):
    """One complete shard, and where its split stood when it was cut."""

    split: Name
    shard: ShardEntry
    taken: Count
    """Documents of the split, in its order, that were done with: stored whole, or left out."""
    documents: Count
    """Those of them that were stored."""
    tokens: Count
    """Their tokens."""
    text_bytes: Count
    """Their bytes of text."""
    too_many_tokens: Count
    """Those that were left out because of their tokens, which only tokenizing shows."""


class Journal:
    """The journal of a running preparation."""

    def __init__(self, directory: Path, *, lines: list[ShardLine], fs: FileSystem = OS) -> None:
        self._path = directory / JOURNAL_NAME
        self._fs = fs
        self._lines = lines

    @property
    def shards(self) -> int:
        """Complete shards."""
        return len(self._lines)

    def last(self, split: str) -> ShardLine | None:
        """Return the line of a split's last complete shard; null where there is none."""
        return next((line for line in reversed(self._lines) if line.split == split), None)

    def written(self, split: str) -> WrittenSplit | None:
        """Return what a split's complete shards hold; null where there are none."""
        last = self.last(split)
        if last is None:
            return None
        shards = [line.shard for line in self._lines if line.split == split]
        return WrittenSplit(shards, last.documents, last.tokens, last.text_bytes)

    def add(self, line: ShardLine) -> None:
        """Note a shard that is on disk.

        Raises:
            StorageError: the system refuses.
        """
        with self._fs.opened(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW) as descriptor:
            self._fs.write(descriptor, canonical_json(line.model_dump(mode="json")) + b"\n", path=self._path)
            self._fs.sync(descriptor, path=self._path)
        self._lines.append(line)


def resume_journal(
    directory: Path, *, head: JournalHead, keep: frozenset[str] = frozenset(), fs: FileSystem = OS
) -> Journal:
    """Return the journal of a folder: what is complete and verified there, or nothing of it.

    Every file that the journal does not vouch for, or that is not what it vouches for, is removed; `keep` stays.

    Raises:
        StorageError: the system refuses.
    """
    lines = _verified(directory, lines=_read(directory, head=head, fs=fs))
    vouched = {name for line in lines for name in _files(line.shard)}
    for name in fs.list_directory(directory):
        if name not in vouched and name not in keep and name != JOURNAL_NAME:
            fs.unlink(directory / name)
    records: list[Record] = [head, *lines]
    text = b"".join(canonical_json(record.model_dump(mode="json")) + b"\n" for record in records)
    replace_file(directory / JOURNAL_NAME, text, fs=fs)
    return Journal(directory, lines=lines, fs=fs)


def read_head(directory: Path, *, fs: FileSystem = OS) -> JournalHead | None:
    """Return what the journal of a folder belongs to; null where there is none that can be read."""
    first, _ = _texts(directory, fs=fs)
    try:
        return JournalHead.model_validate_json(first)
    except ValidationError:
        return None


def has_shards(directory: Path, *, fs: FileSystem = OS) -> bool:
    """Tell whether the journal of a folder names a complete shard; false where there is none that can be read."""
    try:
        return read_head(directory, fs=fs) is not None and any(_parsed(_texts(directory, fs=fs)[1]))
    except LedgerError:
        return False


def _texts(directory: Path, *, fs: FileSystem) -> tuple[bytes, list[bytes]]:
    path = directory / JOURNAL_NAME
    if not fs.exists(path):
        return b"", []
    first, *others = read_regular_file(path, max_bytes=_MAX_BYTES, fs=fs).split(b"\n")
    return first, others


def _read(directory: Path, *, head: JournalHead, fs: FileSystem) -> list[ShardLine]:
    if read_head(directory, fs=fs) != head:
        return []
    return list(_parsed(_texts(directory, fs=fs)[1]))


def _parsed(texts: list[bytes]) -> Iterator[ShardLine]:
    """Yield lines up to the first one that is none: behind it nothing is vouched for."""
    for text in texts:
        try:
            yield ShardLine.model_validate_json(text)
        except ValidationError:
            return


def _verified(directory: Path, *, lines: list[ShardLine]) -> list[ShardLine]:
    """Return the lines whose shards, and those before them in the split, are still what they were."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        sound = list(pool.map(lambda line: _is_sound(directory, shard=line.shard), lines))
    kept: list[ShardLine] = []
    broken: set[str] = set()
    for line, is_sound in zip(lines, sound, strict=True):
        place = sum(other.split == line.split for other in kept)
        if not is_sound or line.split in broken or line.shard.file != f"{line.split}-{place:05d}.npy":
            broken.add(line.split)
            continue
        kept.append(line)
    return kept


def _is_sound(directory: Path, *, shard: ShardEntry) -> bool:
    try:
        return all(hash_file(directory / name).sha256 == digest for name, digest in _files(shard).items())
    except LedgerError:
        return False


def _files(shard: ShardEntry) -> dict[str, str]:
    files = {shard.file: shard.sha256}
    if shard.ends:
        files[shard.ends.file] = shard.ends.sha256
    return files
