"""Repairing what a crash leaves: a torn tail, a run.json that is behind the log, temporary files of ours.

Nothing else is repaired, because nothing else can be without inventing records. A run that holds other damage is not
changed at all: what a person needs to judge it stays as it was found. Every step may be interrupted and done again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from ledger.audit.subject import find_run
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    LedgerError,
    RefusedError,
    VerificationError,
)
from ledger.maintain.condition import Condition, Rebuild, examine
from ledger.maintain.temporaries import remove_temporaries
from ledger.records.layout import LOG, QUARANTINE, RUN
from ledger.storage.atomic import create_file, replace_file
from ledger.storage.digests import hash_file
from ledger.storage.documents import document_bytes
from ledger.storage.files import ensure_folder, opened_regular_file
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.lock import RunLock, claim_log, lock_state
from ledger.storage.log import quarantine_tail
from ledger.storage.mounts import refuse_network_file_system

__all__ = [
    "LISTED_TEMPORARIES",
    "RepairOutcome",
    "RepairReport",
    "RepairStep",
    "refuse_hidden_writer",
    "repair_run",
]

LISTED_TEMPORARIES: Final = 20
"""How many temporary names a report lists; it counts them all."""

_BLOCK_BYTES: Final = 1 << 20
_UNREPAIRABLE: Final = (VerificationError, InvalidDocumentError, EvidenceMissingError, RefusedError)

RepairOutcome = Literal["clean", "repairable", "repaired", "refused", "live"]
"""`clean`: nothing to repair. `repairable`: something is, and nothing was done. `repaired`: it was done. `refused`:
damaged otherwise, nothing was done. `live`: a writer holds the run, so what lies there may be its work."""


@dataclass(frozen=True, kw_only=True)
class RepairStep:
    """One thing that is, or was, put right."""

    what: Literal["torn tail", "run.json", "temporaries"]
    where: str
    problem: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """What a repair found and what it did."""

    run: str
    run_id: str | None = None
    outcome: RepairOutcome
    steps: list[RepairStep] = field(default_factory=list)
    temporaries: list[str] = field(default_factory=list)
    """The first `LISTED_TEMPORARIES` of them."""
    temporary_count: int = 0
    refusal: str | None = None
    """What cannot be repaired and what to do instead."""
    holder: str | None = None
    """Who holds the run, where it is live."""


def repair_run(
    run_dir: str | os.PathLike[str],
    *,
    apply: bool = False,
    allow_network_fs: bool = False,
    fs: FileSystem = OS,
) -> RepairReport:
    """Say what a repair of a run would do; with `apply`, take the writer's lock and do it.

    Without `apply` nothing is written. No event is written ever: the next session names what was moved aside.

    Raises:
        UsageError, InvalidDocumentError: the path is not a run.
        EvidenceMissingError: the folder is empty.
        LockedError: with `apply`, another writer holds the run.
        NewerVersionError: a newer version of the ledger wrote it.
        UnsafeError: something that is no regular file stands in the place of a record; or the run lies on a network
            file system and nobody asked for writing there.
        StorageError: the system refused; what was there is still there, here or in quarantine.
    """
    folder = find_run(run_dir)
    if apply:
        return _repair(folder, allow_network_fs=allow_network_fs, fs=fs)
    lock = lock_state(folder, fs=fs)
    if lock.state == "held":
        return RepairReport(run=str(folder), outcome="live", holder=str(lock.holder or "it does not say who"))
    found = _examine(folder, fs=fs)
    return found if isinstance(found, RepairReport) else _report(folder, found, outcome="repairable")


def _repair(folder: Path, *, allow_network_fs: bool, fs: FileSystem) -> RepairReport:
    refuse_network_file_system(folder, is_allowed=allow_network_fs)
    with RunLock(folder, fs=fs) as lock:
        found = _examine(folder, fs=fs)
        if isinstance(found, RepairReport):
            return found
        lock.require_held()
        refuse_hidden_writer(folder, fs=fs)
        if found.tail is not None:
            quarantine_tail(folder, fs=fs)
        if found.run_document is not None:
            _rebuild(folder, found.run_document, fs=fs)
        remove_temporaries(folder, found.temporaries, fs=fs)
    return _report(folder, found, outcome="repaired")


def refuse_hidden_writer(folder: Path, *, fs: FileSystem) -> None:
    """Make sure that no writer is left whose lock file somebody removed: what lies there would be its work."""
    path = folder / LOG
    if fs.exists(path):
        with opened_regular_file(path, flags=os.O_WRONLY | os.O_APPEND, fs=fs) as descriptor:
            claim_log(descriptor, path=path, fs=fs)


def _examine(folder: Path, *, fs: FileSystem) -> Condition | RepairReport:
    """Return what can be repaired, or the report that nothing can or need be."""
    try:
        condition = examine(folder, fs=fs)
    except _UNREPAIRABLE as error:
        return RepairReport(run=str(folder), outcome="refused", refusal=_advise(error, folder))
    if condition.is_sound:
        return RepairReport(run=str(folder), run_id=condition.run_id, outcome="clean")
    return condition


def _advise(error: LedgerError, folder: Path) -> str:
    return str(error) if error.advice else f"{error} (look at all of it with: ledger reconcile {folder})"


def _rebuild(folder: Path, rebuild: Rebuild, *, fs: FileSystem) -> None:
    """Write run.json as the log says it is, once the bytes that stand there are safe in quarantine."""
    path = folder / RUN
    if rebuild.replaces:
        ensure_folder(folder / QUARANTINE, fs=fs)
        kept = folder / _kept_name(folder, fs=fs)
        create_file(kept, _blocks(path, fs=fs), fs=fs)
    replace_file(path, document_bytes(rebuild.document), fs=fs)


def _kept_name(folder: Path, *, fs: FileSystem) -> str:
    return f"{QUARANTINE}/run-{hash_file(folder / RUN, fs=fs).sha256[:16]}.json"


def _blocks(path: Path, *, fs: FileSystem) -> Iterator[bytes]:
    with opened_regular_file(path, fs=fs) as descriptor:
        while block := fs.read(descriptor, _BLOCK_BYTES, path=path):
            yield block


def _report(folder: Path, condition: Condition, *, outcome: RepairOutcome) -> RepairReport:
    return RepairReport(
        run=str(folder),
        run_id=condition.run_id,
        outcome=outcome,
        steps=list(_steps(condition)),
        temporaries=condition.temporaries[:LISTED_TEMPORARIES],
        temporary_count=len(condition.temporaries),
    )


def _steps(condition: Condition) -> Iterator[RepairStep]:
    if (tail := condition.tail) is not None:
        yield RepairStep(
            what="torn tail",
            where=f"{LOG} byte {tail.offset}",
            problem=f"{tail.bytes:,} bytes after the last newline were never committed",
            remedy=f"copied to {QUARANTINE}/, then cut off",
        )
    if (rebuild := condition.run_document) is not None:
        kept = f"; what stands there is kept in {QUARANTINE}/" if rebuild.replaces else ""
        yield RepairStep(
            what="run.json", where=RUN, problem=rebuild.problem, remedy=f"written anew from the log{kept}"
        )
    if count := len(condition.temporaries):
        yield RepairStep(
            what="temporaries",
            where=condition.temporaries[0] if count == 1 else "the run folder",
            problem=f"{count:,} temporary {'file or folder' if count == 1 else 'files or folders'} "
            "that interrupted writes left",
            remedy="removed",
        )
