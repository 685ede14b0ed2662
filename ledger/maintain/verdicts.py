"""The verdict that a reconcile was asked to keep in its run."""

from __future__ import annotations

import os
from pathlib import Path

from ledger.maintain.sealing import refuse_sealed
from ledger.records.documents import Verdict
from ledger.records.layout import VERDICT
from ledger.storage.atomic import replace_file
from ledger.storage.documents import document_bytes
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.mounts import refuse_network_file_system

__all__ = ["VERDICT", "require_open", "write_verdict"]


def write_verdict(
    run_dir: str | os.PathLike[str], verdict: Verdict, *, allow_network_fs: bool = False, fs: FileSystem = OS
) -> Path:
    """Write a verdict into its run, in place of an older one; returns where it lies.

    Raises:
        RefusedError: the run is sealed: it was declared done, and nothing is added to it.
        UnsafeError: it lies on a network file system and nobody asked for writing there.
        StorageError: the system refused to write.
    """
    folder = require_open(run_dir, allow_network_fs=allow_network_fs, fs=fs)
    replace_file(folder / VERDICT, document_bytes(verdict), fs=fs)
    return folder / VERDICT


def require_open(
    run_dir: str | os.PathLike[str], *, allow_network_fs: bool = False, fs: FileSystem = OS
) -> Path:
    """Return the folder of a run that something may be added to.

    Raises:
        RefusedError: the run is sealed.
        UnsafeError: it lies on a network file system and nobody asked for writing there.
    """
    refuse_sealed(run_dir, fs=fs)
    folder = Path(run_dir)
    refuse_network_file_system(folder, is_allowed=allow_network_fs)
    return folder
