"""The weights of a checkpoint as a file of their own. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ledger.checkpoints import read_checkpoint, verify_checkpoint_files
from ledger.errors import RefusedError
from ledger.records.layout import MODEL_FILE
from ledger.storage.atomic import create_file
from ledger.storage.files import opened_regular_file
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["export_checkpoint"]

_BLOCK_BYTES: Final = 1 << 20


def export_checkpoint(folder: Path, output: Path, *, fs: FileSystem = OS) -> str:
    """Copy the weights of a checkpoint to a new file, after checking their digest; return it.

    Raises:
        RefusedError: something of the output's name exists.
        VerificationError: the weights are absent or damaged.
        LedgerError: the folder is no complete checkpoint, or the system refused; no file of that name appeared.
    """
    if fs.exists(output):
        raise RefusedError(
            "it exists already and is not overwritten", path=output, advice="choose another name"
        )
    checkpoint = read_checkpoint(folder, fs=fs)
    verify_checkpoint_files(checkpoint, names={MODEL_FILE}, fs=fs)
    create_file(output, _blocks(checkpoint.folder / MODEL_FILE, fs=fs), fs=fs)
    return checkpoint.manifest.files[MODEL_FILE].sha256


def _blocks(path: Path, *, fs: FileSystem) -> Iterator[bytes]:
    with opened_regular_file(path, fs=fs) as descriptor:
        while block := fs.read(descriptor, _BLOCK_BYTES, path=path):
            yield block
