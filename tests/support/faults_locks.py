"""Freezing as a scenario of the fault suite: a lock beside an older one, then one over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ledger.locks import read_lock
from ledger.pilot.freeze import replaced_lock, write_lock
from ledger.records.locks import LockedPilot, RecipeLock
from ledger.records.parts import DataIdentities, LogPosition
from ledger.storage.atomic import is_temporary_name
from ledger.storage.canonical import digest_of
from ledger.storage.documents import document_bytes
from ledger.storage.filesystem import FileSystem
from tests.support.faults import LogWatch, Snapshot

IDENTITY: Final = {"optimizer.learning_rate": 0.01}
OLD, OTHER = "old.lock.json", "recipe.lock.json"


def a_lock(**changes: Any) -> RecipeLock:
    """Return a lock that contradicts itself in nothing."""
    pilot = LockedPilot(
        stage="stability",
        path="/pilot",
        run_id="r",
        identity_sha256=digest_of(IDENTITY),
        log_head=LogPosition(1, "0" * 64),
        verdict="passed",
        verdict_sha256="0" * 64,
    )
    lock = RecipeLock(
        tool_version="0",
        created="2026-01-01T00:00:00.000000Z",
        identity=IDENTITY,
        identity_sha256=digest_of(IDENTITY),
        checkpoint=None,
        target_step=1,
        tokens_per_update=8,
        planned_tokens=8,
        data=DataIdentities(train="0" * 64, validation=None),
        code={"commit": None},
        packages={},
        unpinned=[],
        pilots=[pilot],
        budget=None,
        replaces=None,
    )
    return lock.model_copy(update=changes)


def older_lock(place: Path) -> None:
    """Begin with a lock that is to be replaced."""
    (place / "locks").mkdir(parents=True, exist_ok=True)
    (place / "locks" / OLD).write_bytes(document_bytes(a_lock()))


def keep_locks(place: Path, fs: Any) -> None:
    """Write a lock beside the older one, and one over it."""
    fs.watch()
    _keep(place, fs)
    fs.promise(place / "locks" / OTHER)
    fs.unwatch()


def keep_locks_again(place: Path, fs: FileSystem) -> None:
    """Do what was not done."""
    _keep(place, fs)


def _keep(place: Path, fs: FileSystem) -> None:
    folder = place / "locks"
    if not (folder / OTHER).exists():
        write_lock(a_lock(), folder / OTHER, fs=fs)
    if read_lock(folder / OLD).replaces is None:
        newer = a_lock(replaces=replaced_lock(folder / OLD, reason="tried"))
        write_lock(newer, folder / OLD, over=folder / OLD, fs=fs)


def check_locks(folder: Path, before: Snapshot, _watch: LogWatch, promised: list[Path]) -> list[str]:
    """Check that every lock is whole, the older one or the one that replaces it."""
    problems = [f"lost: {path.name}" for path in promised if not path.exists()]
    names = {name for name in Snapshot.of(folder) if not is_temporary_name(name)}
    problems += [f"{name} lies about" for name in sorted(names - set(before) - {OTHER})]
    old = document_bytes(a_lock())
    if (folder / OTHER).exists() and (folder / OTHER).read_bytes() != old:
        problems.append("the new lock is half")
    found = (folder / OLD).read_bytes()
    if found != old and read_lock(folder / OLD).replaces is None:
        problems.append("the replaced lock is half")
    return problems


def check_locks_done(place: Path, _control: Path) -> list[str]:
    """Check what was written at last."""
    done = read_lock(place / "locks" / OLD).replaces is not None and (place / "locks" / OTHER).exists()
    return [] if done else ["not every lock was written"]
