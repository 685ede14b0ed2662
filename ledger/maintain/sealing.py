"""Declaring a run done: a seal over every file of it, on a passed verdict."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.audit.files import MAX_MANIFEST_BYTES
from ledger.audit.heads import head_lines
from ledger.audit.sealing import covered_files
from ledger.errors import RefusedError
from ledger.maintain.repair import refuse_hidden_writer
from ledger.maintain.temporaries import find_temporaries
from ledger.records.documents import Seal, SealedFile, Verdict
from ledger.records.layout import LOG, SEAL
from ledger.records.parts import LogPosition
from ledger.storage.atomic import replace_file
from ledger.storage.canonical import sha256_hex
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.digests import hash_file
from ledger.storage.documents import document_bytes, load_document
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.lock import RunLock
from ledger.storage.log_reader import read_log
from ledger.storage.mounts import refuse_network_file_system

__all__ = ["SealedRun", "is_sealed", "read_seal", "refuse_sealed", "seal_run"]

_SYSTEM_CLOCK: Final = SystemClock()


@dataclass(frozen=True, kw_only=True)
class SealedRun:
    """A seal as it was written."""

    path: Path
    files: int
    bytes: int
    """Of all files that it covers."""
    head: list[str]
    """Three lines to quote; `--expect-head` checks them."""


def seal_run(
    run_dir: str | os.PathLike[str],
    verdict: Verdict,
    *,
    allow_network_fs: bool = False,
    clock: Clock = _SYSTEM_CLOCK,
    fs: FileSystem = OS,
) -> SealedRun:
    """Write seal.json into a run, under the writer's lock: the verdict and the digest of every other file.

    Args:
        run_dir: the run.
        verdict: of this run as it is now, passed, with every byte read (`reconcile(run_dir, rehash=True)`).
        allow_network_fs: write although it lies on a network file system.
        clock: says when.
        fs: the seam to the system.

    Raises:
        RefusedError: it is sealed, the verdict does not allow it, the log went on since, an interrupted write left
            something, or a link or pipe lies in the run.
        LockedError: a writer holds the run.
        UnsafeError: it lies on a network file system and nobody asked for writing there.
        StorageError: the system refused; there is no seal, or the whole one.
    """
    folder = Path(run_dir)
    refuse_network_file_system(folder, is_allowed=allow_network_fs)
    with RunLock(folder, clock=clock, fs=fs) as lock:
        refuse_hidden_writer(folder, fs=fs)
        refuse_sealed(folder, fs=fs)
        log = _require_verdict(folder, verdict, fs=fs)
        _refuse_temporaries(folder, fs=fs)
        files = dict(sorted(_digests(folder, fs=fs)))
        run_id = verdict.run_id or ""
        seal = Seal(run_id=run_id, sealed=clock.now(), log=log, verdict=verdict, files=files)
        data = document_bytes(seal)
        lock.require_held()
        replace_file(folder / SEAL, data, fs=fs)
    return _sealed_run(folder, seal, seal_sha256=sha256_hex(data))


def is_sealed(run_dir: str | os.PathLike[str], *, fs: FileSystem = OS) -> bool:
    """Tell whether a run was declared done."""
    return fs.exists(Path(run_dir) / SEAL)


def read_seal(run_dir: str | os.PathLike[str], *, fs: FileSystem = OS) -> SealedRun:
    """Return the seal that a run bears, as it is written there; whether it holds is for the audit to say.

    Raises:
        EvidenceMissingError: there is none.
        InvalidDocumentError, NewerVersionError, UnsafeError, StorageError: it cannot be read.
    """
    folder = Path(run_dir)
    seal = load_document(folder / SEAL, Seal, fs=fs, max_bytes=MAX_MANIFEST_BYTES)
    return _sealed_run(folder, seal.document, seal_sha256=seal.sha256)


def _sealed_run(folder: Path, seal: Seal, *, seal_sha256: str) -> SealedRun:
    return SealedRun(
        path=folder / SEAL,
        files=len(seal.files),
        bytes=sum(file.bytes for file in seal.files.values()),
        head=head_lines(run_id=seal.run_id, log=seal.log, seal_sha256=seal_sha256),
    )


def refuse_sealed(run_dir: str | os.PathLike[str], *, fs: FileSystem = OS) -> None:
    """Refuse what would change a run that was declared done.

    Raises:
        RefusedError: there is a seal.
    """
    if is_sealed(run_dir, fs=fs):
        raise RefusedError(
            "the run is sealed already",
            path=run_dir,
            expected="a run that is still open",
            advice=f"whether the seal still holds, and its head, tells: ledger verify {run_dir}",
        )


def _require_verdict(folder: Path, verdict: Verdict, *, fs: FileSystem) -> LogPosition:
    """Return the head that the verdict covers, once it is sure that it is the log's and that all was read."""
    if verdict.verdict != "passed" or verdict.log_head is None:
        raise RefusedError(f"its verdict is {verdict.verdict}", path=folder, expected="a passed verdict")
    if "LG402 digests" in verdict.not_checked:
        raise RefusedError(
            "its verdict rests on files that were not read", path=folder, expected="a verdict of every byte"
        )
    head = None
    with read_log(folder / LOG, fs=fs) as reader:
        for line in reader:
            if line.event is not None:
                head = LogPosition(line.event.seq, line.chain)
    if head != verdict.log_head:
        raise RefusedError(
            "the log is not the one that the verdict covers", path=folder, advice="reconcile it again"
        )
    return head


def _refuse_temporaries(folder: Path, *, fs: FileSystem) -> None:
    left = find_temporaries(folder, fs=fs)
    if left:
        raise RefusedError(
            "an interrupted write left something, and nothing can be removed from a sealed run",
            path=folder,
            place=left[0],
            advice=f"remove it with: ledger repair {folder} --apply",
        )


def _digests(folder: Path, *, fs: FileSystem) -> Iterator[tuple[str, SealedFile]]:
    for path, size in covered_files(folder, fs=fs):
        if size is None:
            raise RefusedError(
                "is no regular file",
                path=folder,
                place=path,
                advice="move it out of the run, or copy what it names",
            )
        found = hash_file(folder / path, fs=fs)
        yield path, SealedFile(bytes=found.bytes, sha256=found.sha256)
