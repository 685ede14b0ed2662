"""Opens a dataset: reads its manifest and checks, without hashing, that its files are there in the right form.

What start-up does not find out is whether bytes changed inside a file of the right size: that is the work of
`ledger.dataset.verify`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.names import validate_file_name, validate_unique_names
from ledger.dataset.npy import ArrayDtype, NpyHeader, read_array, read_header, read_items
from ledger.errors import EvidenceMissingError, UsageError, VerificationError
from ledger.records.dataset import DatasetManifest, ShardEntry, SplitInventory
from ledger.storage.documents import document_sha256, read_document
from ledger.storage.files import require_own_file
from ledger.storage.filesystem import OS

__all__ = [
    "MAX_MANIFEST_BYTES",
    "METADATA_NAME",
    "NOTES_NAME",
    "TOKENIZER_NAME",
    "Dataset",
    "Split",
    "check_ends",
    "check_shard",
    "listed_files",
    "open_dataset",
    "read_manifest",
]

METADATA_NAME: Final = "metadata.json"
NOTES_NAME: Final = "preparation.json"
TOKENIZER_NAME: Final = "tokenizer.json"
MAX_MANIFEST_BYTES: Final = 64 * 2**20

_KEPT_SHARD_ENDS: Final = 64
_ADVICE: Final = "restore the file from where the dataset was prepared, or prepare the dataset again"


class Split:
    """One split of an open dataset: a stream of tokens that crosses shards."""

    def __init__(self, name: str, *, directory: Path, inventory: SplitInventory, dtype: ArrayDtype) -> None:
        self.name = name
        self.inventory = inventory
        self.dtype = dtype
        self.directory = directory
        self._ends = list(accumulate(shard.tokens for shard in inventory.shards))
        self._document_ends: OrderedDict[int, NDArray[np.uint64]] = OrderedDict()

    @property
    def tokens(self) -> int:
        """Tokens of the stream."""
        return self.inventory.tokens

    @property
    def documents(self) -> int:
        """Documents of the stream; each ends with the end-of-text token."""
        return self.inventory.documents

    def read(self, start: int, *, count: int) -> NDArray[Any]:
        """Return tokens `start` to `start + count` in their stored type.

        Raises:
            UsageError: they do not lie inside the split.
            StorageError: a shard could not be read, or is shorter than it was.
        """
        if start < 0 or count < 1 or start + count > self.tokens:
            problem = f"tokens {start} to {start + count} of {self.name!r} were asked for"
            raise UsageError(
                problem, path=self.directory, expected=f"a range inside its {self.tokens} tokens"
            )
        parts = []
        index = bisect_right(self._ends, start)
        while count:
            begin = self._ends[index] - self.inventory.shards[index].tokens
            part = self._read_shard(index, start=start - begin, count=min(count, self._ends[index] - start))
            parts.append(part)
            start, count, index = start + part.size, count - part.size, index + 1
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def document_ends(self) -> NDArray[np.uint64]:
        """Return the positions in the split behind the last token of every document; raises what `ends_in` raises."""
        return np.concatenate([self._read_ends(index) for index in range(len(self._ends))])

    @property
    def shard_tokens(self) -> list[int]:
        """Tokens of each shard, in order."""
        return [shard.tokens for shard in self.inventory.shards]

    def ends_in(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Return the document ends e of the split with start < e <= stop; the ends of few shards are kept in memory.

        Raises:
            StorageError, VerificationError, InvalidDocumentError: a file of ends cannot be read.
        """
        first, last = bisect_right(self._ends, start), bisect_left(self._ends, stop)
        parts = []
        bounds = np.array([start, stop], dtype=np.uint64)  # of their type, or each search would copy the ends
        for index in range(first, min(last + 1, len(self._ends))):
            ends = self._shard_ends(index)
            begin, end = ends.searchsorted(bounds, "right")
            parts.append(ends[begin:end])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def locate(self, position: int) -> tuple[ShardEntry, int]:
        """Return the shard that holds a token of the split, and the token's position in it."""
        index = bisect_right(self._ends, position)
        shard = self.inventory.shards[index]
        return shard, position - (self._ends[index] - shard.tokens)

    def _shard_ends(self, index: int) -> NDArray[np.uint64]:
        found = self._document_ends.get(index)
        if found is None:
            found = self._document_ends[index] = self._read_ends(index)
            while len(self._document_ends) > _KEPT_SHARD_ENDS:
                self._document_ends.popitem(last=False)
        return found

    def _read_ends(self, index: int) -> NDArray[np.uint64]:
        """Return the document ends in a shard, which rise and lie in it: a changed byte could point anywhere."""
        shard = self.inventory.shards[index]
        if shard.ends is None:
            return np.empty(0, dtype=np.uint64)
        path, end = self.directory / shard.ends.file, self._ends[index]
        ends = read_array(path)
        begin = end - shard.tokens
        if not begin < int(ends[0]) <= int(ends[-1]) <= end or not (ends[1:] > ends[:-1]).all():
            problem = "the document ends do not rise through their shard"
            expected = f"rising positions behind {begin}, up to {end}"
            raise VerificationError(problem, path=path, expected=expected, advice=_ADVICE)
        return ends

    def _read_shard(self, index: int, *, start: int, count: int) -> NDArray[Any]:
        shard = self.inventory.shards[index]
        header = NpyHeader(self.dtype, shard.tokens)
        return read_items(self.directory / shard.file, header=header, start=start, count=count)


class Dataset:
    """A dataset whose manifest is valid and whose files are there; `open_dataset` makes them."""

    def __init__(self, directory: Path, *, manifest: DatasetManifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self.metadata_sha256 = document_sha256(manifest)

    @property
    def tokenizer_path(self) -> Path:
        """The tokenizer that made the ids."""
        return self.directory / TOKENIZER_NAME

    def split(self, name: str) -> Split:
        """Return a split by its name.

        Raises:
            EvidenceMissingError: the dataset has no such split.
        """
        inventory = self.manifest.splits.get(name)
        if inventory is None:
            known = ", ".join(sorted(self.manifest.splits))
            problem = f"the dataset has no split {name!r}"
            raise EvidenceMissingError(problem, path=self.directory, expected=f"one of: {known}")
        return Split(name, directory=self.directory, inventory=inventory, dtype=self.manifest.dtype)


def open_dataset(path: str | PathLike[str]) -> Dataset:
    """Open a dataset after checking that every file exists with its type, shape and exact size.

    Nothing is hashed: a changed byte inside a file is not found here but by `verify_dataset`.

    Raises:
        EvidenceMissingError: there is no dataset, or a file of it is missing.
        InvalidDocumentError: the manifest contradicts itself or a file is not in the one form used here.
        VerificationError: a file does not agree with the manifest, or is damaged.
        UnsafeError: a name leads out of the folder, or a file is a link, a pipe or a pickle.
        NewerVersionError: it was written by a newer version.
        StorageError: it could not be read.
    """
    directory = Path(path)
    manifest = read_manifest(directory)
    tokenizer = directory / TOKENIZER_NAME
    if not OS.exists(tokenizer):
        raise EvidenceMissingError("the file does not exist", path=tokenizer, advice=_ADVICE)
    require_own_file(tokenizer)
    for inventory in manifest.splits.values():
        for shard in inventory.shards:
            check_shard(directory, shard=shard, dtype=manifest.dtype)
            check_ends(directory, shard=shard)
    return Dataset(directory, manifest=manifest)


def read_manifest(directory: Path) -> DatasetManifest:
    """Read and validate metadata.json alone, the names in it included; raises what `open_dataset` raises."""
    path = directory / METADATA_NAME
    if not OS.exists(path):
        problem = "there is no prepared dataset here: metadata.json does not exist"
        raise EvidenceMissingError(problem, path=directory, advice="prepare it with `ledger prepare`")
    manifest = read_document(path, DatasetManifest, max_bytes=MAX_MANIFEST_BYTES)
    names = [name for name, _ in _listed(manifest)]
    for name in names:
        validate_file_name(name, path=path, place="splits")
    validate_unique_names([METADATA_NAME, NOTES_NAME, *names], path=path)
    return manifest


def listed_files(manifest: DatasetManifest) -> dict[str, str]:
    """Return every file that a manifest vouches for, tokenizer included, with its SHA-256."""
    return dict(_listed(manifest))


def check_shard(directory: Path, *, shard: ShardEntry, dtype: ArrayDtype) -> None:
    """Check that a shard exists with the type, length and size that the manifest gives it."""
    _check_array(directory / shard.file, dtype=dtype, count=shard.tokens)


def check_ends(directory: Path, *, shard: ShardEntry) -> None:
    """Check that the document ends of a shard exist with their type, number and size."""
    if shard.ends:
        _check_array(directory / shard.ends.file, dtype="uint64", count=shard.documents)


def _listed(manifest: DatasetManifest) -> Iterator[tuple[str, str]]:
    yield TOKENIZER_NAME, manifest.tokenizer.sha256
    for inventory in manifest.splits.values():
        for shard in inventory.shards:
            yield shard.file, shard.sha256
            if shard.ends:
                yield shard.ends.file, shard.ends.sha256


def _check_array(path: Path, *, dtype: ArrayDtype, count: int) -> None:
    header = read_header(path)
    if (header.dtype, header.count) != (dtype, count):
        problem = f"the file holds {header.count} {header.dtype} elements"
        raise VerificationError(
            problem, path=path, expected=f"{count} {dtype}, as metadata.json says", advice=_ADVICE
        )
