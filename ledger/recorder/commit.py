"""Committing a checkpoint: hashed, pinned on the log, synced, renamed, and only then spoken of.

The order is what makes a checkpoint trustworthy: the log is on disk first, then every file, then the manifest, then
the name. A crash at any point leaves a temporary folder or a complete checkpoint, never half of one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ledger.checkpoints import CompleteCheckpoint
from ledger.errors import StorageError, UsageError
from ledger.recorder.plan import LiveState, SessionDigests
from ledger.records.documents import CheckpointFile, CheckpointManifest, TrainerState
from ledger.records.events import CheckpointKind
from ledger.records.layout import CHECKPOINTS, MANIFEST, TRAINER_STATE, checkpoint_name
from ledger.records.parts import Counters, Cursor, DataIdentities, LogPosition, StateDigests
from ledger.storage.atomic import publish_folder, sync_file, temporary_path, write_new_file
from ledger.storage.canonical import sha256_hex
from ledger.storage.digests import hash_file
from ledger.storage.documents import document_bytes
from ledger.storage.files import ensure_folder, is_own_folder
from ledger.storage.filesystem import FileSystem
from ledger.storage.safetensors import sync_and_hash
from ledger.storage.trees import remove_tree

__all__ = ["Captured", "commit_checkpoint", "discard_checkpoint_folder", "open_checkpoint_folder"]

_RESERVED = frozenset({MANIFEST, TRAINER_STATE})


@dataclass(frozen=True, kw_only=True)
class Captured:
    """The moment a checkpoint captures, read before the loop writes its files."""

    run_id: str
    session: int
    kind: CheckpointKind
    counters: Counters
    cursor: Cursor
    data_chain: str
    consecutive_skips: int
    live: LiveState
    state: StateDigests
    digests: SessionDigests
    data: DataIdentities
    log: LogPosition


def open_checkpoint_folder(run_dir: Path, captured: Captured, *, fs: FileSystem) -> Path:
    """Make and return the temporary folder that the loop writes its tensors into."""
    root = run_dir / CHECKPOINTS
    ensure_folder(root, fs=fs)
    folder = temporary_path(root / checkpoint_name(step=captured.counters.step, session=captured.session))
    fs.mkdir(folder)
    return folder


def commit_checkpoint(folder: Path, captured: Captured, *, fs: FileSystem) -> CompleteCheckpoint:
    """Turn a filled temporary folder into a complete checkpoint and return it.

    Raises:
        UsageError: the loop wrote a file that is the ledger's own, a folder, or nothing.
        StorageError: the system refused; no checkpoint of that name appeared.
    """
    names = fs.list_directory(folder)
    if reserved := _RESERVED.intersection(names):
        raise UsageError(f"{', '.join(sorted(reserved))} is written by the recorder", path=folder)
    files = {name: _describe(folder / name, fs=fs) for name in names}
    trainer = document_bytes(_trainer_state(captured))
    write_new_file(folder / TRAINER_STATE, trainer, fs=fs)
    files[TRAINER_STATE] = CheckpointFile(bytes=len(trainer), sha256=sha256_hex(trainer), tensors=None)
    manifest = _manifest(captured, files)
    data = document_bytes(manifest)
    write_new_file(folder / MANIFEST, data, fs=fs)
    final = folder.with_name(checkpoint_name(step=captured.counters.step, session=captured.session))
    publish_folder(folder, final, fs=fs)
    return CompleteCheckpoint(
        folder=final, path=f"{CHECKPOINTS}/{final.name}", manifest=manifest, manifest_sha256=sha256_hex(data)
    )


def discard_checkpoint_folder(folder: Path, *, fs: FileSystem) -> None:
    """Remove a temporary folder whose checkpoint will not be; what cannot be removed stays, under its own name."""
    with suppress(StorageError):
        remove_tree(folder, fs=fs)


def _describe(path: Path, *, fs: FileSystem) -> CheckpointFile:
    if is_own_folder(path, fs=fs):
        raise UsageError("a checkpoint holds files only", path=path, expected="no folder inside a checkpoint")
    if path.suffix == ".safetensors":
        (size, sha256), tensors = sync_and_hash(path, fs=fs)
        return CheckpointFile(bytes=size, sha256=sha256, tensors=tensors)
    sync_file(path, fs=fs)
    size, sha256 = hash_file(path, fs=fs)
    return CheckpointFile(bytes=size, sha256=sha256, tensors=None)


def _trainer_state(captured: Captured) -> TrainerState:
    return TrainerState(
        session=captured.session,
        seq=captured.log.seq,
        counters=captured.counters,
        cursor=captured.cursor,
        data_chain=captured.data_chain,
        consecutive_skips=captured.consecutive_skips,
        schedule=captured.live.schedule,
        rng=captured.live.rng,
        scaler=captured.live.scaler,
        guards=captured.live.guards,
    )


def _manifest(captured: Captured, files: dict[str, CheckpointFile]) -> CheckpointManifest:
    return CheckpointManifest(
        run_id=captured.run_id,
        session=captured.session,
        kind=captured.kind,
        counters=captured.counters,
        cursor=captured.cursor,
        data_chain=captured.data_chain,
        state=captured.state,
        recipe_sha256=captured.digests.recipe_sha256,
        identity_sha256=captured.digests.identity_sha256,
        data=captured.data,
        log=captured.log,
        files=files,
    )
