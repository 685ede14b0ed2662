"""Verifies a dataset byte for byte, and checks what its tokens say about themselves.

Everything wrong is returned, each as a typed problem that names the file; the caller decides what it means.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from ledger.dataset.blocks import damaged_ranges
from ledger.dataset.manifest import (
    MAX_MANIFEST_BYTES,
    METADATA_NAME,
    NOTES_NAME,
    Split,
    check_ends,
    check_shard,
    listed_files,
    open_dataset,
    read_manifest,
)
from ledger.dataset.npy import read_array
from ledger.dataset.parallel import map_in_order
from ledger.errors import InvalidDocumentError, LedgerError, StorageError, VerificationError
from ledger.records.dataset import DatasetManifest, PreparationNotes, SplitInventory
from ledger.storage.digests import hash_file
from ledger.storage.documents import document_sha256, read_document
from ledger.storage.filesystem import OS

__all__ = [
    "DatasetProblem",
    "DatasetVerification",
    "Progress",
    "check_document_ends",
    "check_tokens",
    "verify_dataset",
]

Progress = Callable[[int], object]
"""Told the number of bytes that were just read."""

_CHUNK_TOKENS: Final = 2**22
_SHOWN_RANGES: Final = 4
_ADVICE: Final = "restore the file from where the dataset was prepared, or prepare the dataset again"


@dataclass(frozen=True)
class DatasetProblem:
    """One thing that is wrong with a dataset."""

    file: str
    """Its name in the dataset."""
    error: LedgerError
    """What is wrong: its class says how, its message where, what was expected and what was found."""
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return str(self.error)


@dataclass(frozen=True)
class DatasetVerification:
    """What a full verification found."""

    manifest: DatasetManifest
    metadata_sha256: str
    files: int
    """Files whose bytes were hashed, or should have been."""
    problems: tuple[DatasetProblem, ...]

    @property
    def errors(self) -> tuple[DatasetProblem, ...]:
        """The problems that are more than a warning."""
        return tuple(problem for problem in self.problems if problem.severity == "error")


def verify_dataset(
    path: str | PathLike[str], *, progress: Progress | None = None, workers: int | None = None
) -> DatasetVerification:
    """Check the form of every file of a dataset, rehash it and check the document ends.

    Args:
        path: the dataset.
        progress: told of bytes as they are hashed, from several threads.
        workers: threads that hash; null: one a core.

    Raises:
        StorageError: the system refused to read something: nothing can be said of it.
        LedgerError: the manifest itself cannot be trusted; everything else is a problem in the result.
    """
    directory = Path(path)
    manifest = read_manifest(directory)
    listed = listed_files(manifest)
    problems = list(_check_structure(directory, manifest=manifest))
    broken = {problem.file for problem in problems}
    blocks = _read_blocks(directory)
    with ThreadPoolExecutor(max_workers=workers or os.cpu_count()) as pool:
        jobs = [
            pool.submit(_verify_file, directory / name, sha256=sha256, blocks=blocks, progress=progress)
            for name, sha256 in listed.items()
            if name not in broken
        ]
        problems += [problem for job in jobs if (problem := job.result())]
    problems += _check_all_ends(directory, manifest=manifest, broken={problem.file for problem in problems})
    problems += _check_notes(directory, manifest=manifest)
    problems += _unlisted(directory, listed={*listed, METADATA_NAME, NOTES_NAME})
    problems += _warnings(directory, listed=listed, broken={problem.file for problem in problems})
    return DatasetVerification(manifest, document_sha256(manifest), len(listed), tuple(problems))


def check_document_ends(inventory: SplitInventory, *, ends: NDArray[np.uint64]) -> str | None:
    """Return what is wrong with the document ends of a whole split, or null.

    They rise strictly (a document has at least its end-of-text token), the last is the end of the split, and there
    are as many as documents.
    """
    if ends.size != inventory.documents:
        return f"there are {ends.size} document ends; {inventory.documents} documents are listed"
    falls = np.flatnonzero(ends[1:] <= ends[:-1])
    if falls.size or int(ends[0]) == 0:
        index = int(falls[0]) + 1 if falls.size else 0
        return f"document end {index} is {int(ends[index])}, which is not behind the one before"
    if int(ends[-1]) != inventory.tokens:
        return f"the last document ends at {int(ends[-1])}; the split has {inventory.tokens} tokens"
    return None


def check_tokens(path: str | PathLike[str]) -> Iterator[DatasetProblem]:
    """Check that ids lie below the vocabulary and that documents, and nothing else, end with end-of-text (LG504).

    Raises:
        LedgerError: the dataset cannot be opened or read.
    """
    dataset = open_dataset(path)
    for name in dataset.manifest.splits:
        yield from _check_split_tokens(dataset.split(name), manifest=dataset.manifest)


def _check_structure(directory: Path, *, manifest: DatasetManifest) -> Iterator[DatasetProblem]:
    for inventory in manifest.splits.values():
        for shard in inventory.shards:
            try:
                check_shard(directory, shard=shard, dtype=manifest.dtype)
            except StorageError:
                raise
            except LedgerError as error:
                yield DatasetProblem(shard.file, error)
            if shard.ends is None:
                continue
            try:
                check_ends(directory, shard=shard)
            except StorageError:
                raise
            except LedgerError as error:
                yield DatasetProblem(shard.ends.file, error)


def _verify_file(
    path: Path, *, sha256: str, blocks: Mapping[str, Sequence[str]], progress: Progress | None
) -> DatasetProblem | None:
    try:
        _, found = hash_file(path, progress=progress)
    except StorageError:
        raise
    except LedgerError as error:
        return DatasetProblem(path.name, error)
    if found == sha256:
        return None
    problem = f"its bytes changed: their SHA-256 is {found}"
    place = _damaged_place(path, digests=blocks.get(path.name, ()))
    changed = VerificationError(problem, path=path, place=place, expected=sha256, advice=_ADVICE)
    return DatasetProblem(path.name, changed)


def _damaged_place(path: Path, *, digests: Sequence[str]) -> str | None:
    """Return where in a file damage lies, as far as the digests of its blocks tell."""
    try:
        ranges = damaged_ranges(path, digests=digests)
        size = OS.stat(path).st_size
    except LedgerError:
        return None
    if not ranges:
        return None
    shown = [f"{begin} to {min(end, size)}" for begin, end in ranges[:_SHOWN_RANGES]]
    more = f" and {len(ranges) - _SHOWN_RANGES} more ranges" if len(ranges) > _SHOWN_RANGES else ""
    return f"bytes {', '.join(shown)}{more}"


def _read_blocks(directory: Path) -> Mapping[str, Sequence[str]]:
    """Return the digests of blocks that the notes hold; nothing where there are no notes that can be read."""
    try:
        notes = read_document(directory / NOTES_NAME, PreparationNotes, max_bytes=MAX_MANIFEST_BYTES)
    except StorageError:
        raise
    except LedgerError:
        return {}
    return notes.blocks


def _check_all_ends(
    directory: Path, *, manifest: DatasetManifest, broken: set[str]
) -> Iterator[DatasetProblem]:
    for inventory in manifest.splits.values():
        names = [shard.ends.file for shard in inventory.shards if shard.ends]
        if broken.intersection(names):
            continue
        position, first = 0, 0
        ends = np.concatenate([read_array(directory / name) for name in names])
        if problem := check_document_ends(inventory, ends=ends):
            yield DatasetProblem(names[0], InvalidDocumentError(problem, path=directory / names[0]))
            continue
        for shard in inventory.shards:
            inside = ends[first : first + shard.documents]
            if inside.size and not position < int(inside[0]) <= int(inside[-1]) <= position + shard.tokens:
                problem = f"the document ends {int(inside[0])} to {int(inside[-1])} do not lie in this shard"
                expected = f"positions behind {position}, up to {position + shard.tokens}"
                file = directory / shard.file
                yield DatasetProblem(shard.file, InvalidDocumentError(problem, path=file, expected=expected))
            position, first = position + shard.tokens, first + shard.documents


def _check_notes(directory: Path, *, manifest: DatasetManifest) -> Iterator[DatasetProblem]:
    """Compare the identity with the one that was noted when the dataset was prepared; the notes may be absent."""
    path = directory / NOTES_NAME
    if not OS.exists(path):
        return
    try:
        notes = read_document(path, PreparationNotes, max_bytes=MAX_MANIFEST_BYTES)
    except StorageError:
        raise
    except LedgerError as error:
        yield DatasetProblem(NOTES_NAME, error)
        return
    found = document_sha256(manifest)
    if notes.metadata_sha256 != found:
        problem = f"its SHA-256 is {found}: it was changed after the dataset was prepared"
        expected = f"{notes.metadata_sha256}, as {NOTES_NAME} says"
        path = directory / METADATA_NAME
        changed = VerificationError(problem, path=path, expected=expected, advice=_ADVICE)
        yield DatasetProblem(METADATA_NAME, changed)


def _warnings(directory: Path, *, listed: dict[str, str], broken: set[str]) -> Iterator[DatasetProblem]:
    seen: dict[str, str] = {}
    for name, sha256 in listed.items():
        if name in broken:
            continue
        if sha256 in seen:
            problem = f"it holds the same bytes as {seen[sha256]}"
            error = VerificationError(problem, path=directory / name, expected="every shard to differ")
            yield DatasetProblem(name, error, "warning")
        seen.setdefault(sha256, name)
        if OS.stat(directory / name).st_nlink > 1:
            problem = "the file has a second name, through which it could be changed"
            error = VerificationError(problem, path=directory / name, expected="one name")
            yield DatasetProblem(name, error, "warning")


def _unlisted(directory: Path, *, listed: set[str]) -> Iterator[DatasetProblem]:
    for name in OS.list_directory(directory):
        if name not in listed:
            problem = "the manifest does not list this file"
            error = InvalidDocumentError(problem, path=directory / name, advice="move it elsewhere")
            yield DatasetProblem(name, error)


def _check_split_tokens(split: Split, *, manifest: DatasetManifest) -> Iterator[DatasetProblem]:
    """Yield the first problem of a split, if there is one."""
    check = partial(_check_chunk, split, manifest=manifest)
    found = map_in_order(check, range(0, split.tokens, _CHUNK_TOKENS))
    yield from islice(filter(None, found), 1)


def _check_chunk(split: Split, start: int, *, manifest: DatasetManifest) -> DatasetProblem | None:
    tokenizer = manifest.tokenizer
    tokens = split.read(start, count=min(_CHUNK_TOKENS, split.tokens - start))
    outside = np.flatnonzero(tokens >= tokenizer.vocabulary)
    if outside.size:
        problem = f"the token id {int(tokens[outside[0]])} is not in the vocabulary"
        return _token_problem(split, start + int(outside[0]), problem, f"ids below {tokenizer.vocabulary}")
    found = np.flatnonzero(tokens == tokenizer.eos_id).astype(np.uint64) + np.uint64(start + 1)
    stated = split.ends_in(start, start + tokens.size)
    if np.array_equal(found, stated):
        return None
    position = int(np.setxor1d(found, stated)[0]) - 1
    ended = "ends a document without" if position + 1 in stated else "is inside a document but is"
    problem = f"token {position} of the split {ended} the end-of-text token"
    return _token_problem(split, position, problem, f"id {tokenizer.eos_id} at each document's end alone")


def _token_problem(split: Split, position: int, problem: str, expected: str) -> DatasetProblem:
    shard, offset = split.locate(position)
    path = split.directory / shard.file
    error = InvalidDocumentError(problem, path=path, place=f"token {offset}", expected=expected)
    return DatasetProblem(shard.file, error)
