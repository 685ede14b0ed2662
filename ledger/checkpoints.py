"""Checkpoints of a run as they lie on disk: finding the complete ones and reading what they say.

A checkpoint is complete when its folder has a final name and a manifest, because the manifest is written last and
the rename comes after it. Nothing else is ever taken for one, and nothing is ever reached through a link.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ledger.errors import InvalidDocumentError, VerificationError
from ledger.history import KnownCheckpoint
from ledger.records.documents import CheckpointManifest, TrainerState
from ledger.records.layout import CHECKPOINTS, MANIFEST, TRAINER_STATE, parse_checkpoint_name
from ledger.storage.canonical import sha256_hex
from ledger.storage.digests import hash_file
from ledger.storage.documents import parse_document
from ledger.storage.files import read_regular_file, require_own_file, require_own_folder
from ledger.storage.filesystem import OS, FileSystem

__all__ = [
    "CompleteCheckpoint",
    "find_checkpoints",
    "find_incomplete",
    "read_checkpoint",
    "read_trainer_state",
    "verify_checkpoint_files",
]

MAX_MANIFEST_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class CompleteCheckpoint:
    """A complete checkpoint: where it lies and what its manifest says."""

    folder: Path
    path: str
    """Relative to the run folder, as events name it."""
    manifest: CheckpointManifest
    manifest_sha256: str

    @property
    def known(self) -> KnownCheckpoint:
        """The same checkpoint as the history speaks of it."""
        return KnownCheckpoint(
            path=self.path,
            session=self.manifest.session,
            counters=self.manifest.counters,
            manifest_sha256=self.manifest_sha256,
            seq=self.manifest.log.seq,
            kind=self.manifest.kind,
        )


def find_checkpoints(run_dir: Path, *, fs: FileSystem = OS) -> list[CompleteCheckpoint]:
    """Return every complete checkpoint of a run, with or without an event, by folder name.

    Raises:
        InvalidDocumentError: a folder with a checkpoint's name holds a manifest that cannot be read as one.
        UnsafeError: `checkpoints`, one of the folders in it or a file of one is a link.
    """
    folders = _named_folders(run_dir, fs=fs)
    return [read_checkpoint(folder, fs=fs) for folder in folders if fs.exists(folder / MANIFEST)]


def find_incomplete(run_dir: Path, *, fs: FileSystem = OS) -> list[str]:
    """Return the paths of folders with a checkpoint's name and no manifest: each lost it, for it comes before the name.

    Raises:
        UnsafeError: as `find_checkpoints`.
    """
    folders = _named_folders(run_dir, fs=fs)
    return [f"{CHECKPOINTS}/{folder.name}" for folder in folders if not fs.exists(folder / MANIFEST)]


def _named_folders(run_dir: Path, *, fs: FileSystem) -> list[Path]:
    root = run_dir / CHECKPOINTS
    if not fs.exists(root):
        return []
    require_own_folder(root, fs=fs)
    folders = [root / name for name in sorted(fs.list_directory(root)) if parse_checkpoint_name(name)]
    for folder in folders:
        require_own_folder(folder, fs=fs)
    return folders


def read_checkpoint(folder: Path, *, fs: FileSystem = OS) -> CompleteCheckpoint:
    """Read the manifest of one checkpoint folder.

    Raises:
        InvalidDocumentError: the manifest is malformed, or its counters contradict the folder's name.
        EvidenceMissingError: there is no manifest, so the folder is not a complete checkpoint.
        UnsafeError: the folder, or a file of it, is a link.
    """
    require_own_folder(folder, fs=fs)
    path = folder / MANIFEST
    data = read_regular_file(path, max_bytes=MAX_MANIFEST_BYTES, fs=fs)
    manifest = parse_document(data, CheckpointManifest, path=path)
    if parse_checkpoint_name(folder.name) != (manifest.counters.step, manifest.session):
        raise InvalidDocumentError(
            f"the manifest is of step {manifest.counters.step}, session {manifest.session}, but the folder is "
            f"named {folder.name}",
            path=path,
            expected="folder name and manifest to agree",
            advice="the folder was renamed or copied; move it out of the run",
        )
    for name in sorted(manifest.files):
        if fs.exists(folder / name):
            require_own_file(folder / name, fs=fs)
    return CompleteCheckpoint(
        folder=folder,
        path=f"{CHECKPOINTS}/{folder.name}",
        manifest=manifest,
        manifest_sha256=sha256_hex(data),
    )


def verify_checkpoint_files(
    checkpoint: CompleteCheckpoint, *, names: Collection[str] | None = None, fs: FileSystem = OS
) -> None:
    """Check that every file of a checkpoint, or each of `names`, has the size and digest of its manifest.

    Raises:
        VerificationError: a file is absent, not listed or differs; the message names it.
    """
    for name in sorted(checkpoint.manifest.files if names is None else names):
        path, entry = checkpoint.folder / name, checkpoint.manifest.files.get(name)
        if entry is None:
            raise VerificationError(
                "is not in the manifest", path=path, expected="a checkpoint that holds it"
            )
        if not fs.exists(path):
            raise VerificationError(
                "is absent", path=path, expected="the file that the manifest lists", advice=_ADVICE
            )
        size, digest = hash_file(path, fs=fs)
        if (size, digest) != (entry.bytes, entry.sha256):
            raise VerificationError(
                f"holds {size} bytes with SHA-256 {digest}",
                path=path,
                expected=f"{entry.bytes} bytes with SHA-256 {entry.sha256}",
                advice=_ADVICE,
            )


_ADVICE = "the checkpoint is damaged: resume from another one by naming it"


def read_trainer_state(checkpoint: CompleteCheckpoint, *, fs: FileSystem = OS) -> TrainerState:
    """Read trainer.json of a checkpoint and check it against the manifest.

    Raises:
        VerificationError: its bytes are not the ones that the manifest lists.
        InvalidDocumentError: it is malformed.
    """
    path = checkpoint.folder / TRAINER_STATE
    data = read_regular_file(path, max_bytes=MAX_MANIFEST_BYTES, fs=fs)
    entry = checkpoint.manifest.files.get(TRAINER_STATE)
    if entry is None or entry.sha256 != sha256_hex(data):
        raise VerificationError(
            "is not the file that manifest.json lists",
            path=path,
            expected="its digest to match",
            advice=_ADVICE,
        )
    return parse_document(data, TrainerState, path=path)
