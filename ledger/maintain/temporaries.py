"""Our own temporary files and folders that crashes left in a run: finding them, removing them, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ledger.records.layout import (
    CHECKPOINTS,
    ENVIRONMENTS,
    EVALUATIONS,
    EXPORTS,
    PARENT,
    QUARANTINE,
    RECIPES,
    parse_checkpoint_name,
)
from ledger.storage.atomic import is_temporary_name
from ledger.storage.files import is_own_folder
from ledger.storage.filesystem import FileSystem
from ledger.storage.trees import remove_tree

__all__ = ["find_temporaries", "remove_temporaries"]

_FOLDERS: Final = (RECIPES, ENVIRONMENTS, CHECKPOINTS, EVALUATIONS, EXPORTS, PARENT, QUARANTINE)


def find_temporaries(run_dir: Path, *, fs: FileSystem) -> list[str]:
    """Return the paths, inside the run folder, of temporary names where the ledger makes them; links are not followed.

    Raises:
        StorageError: the system refused.
    """
    return [path for folder in _places(run_dir, fs=fs) for path in _temporaries_in(run_dir, folder, fs=fs)]


def remove_temporaries(run_dir: Path, paths: Iterable[str], *, fs: FileSystem) -> None:
    """Remove what `find_temporaries` found and make that durable. Doing it again after a crash ends the same way.

    Raises:
        StorageError: the system refused; what is left is found again.
    """
    parents = set()
    for path in paths:
        remove_tree(run_dir / path, fs=fs)
        parents.add((run_dir / path).parent)
    for parent in sorted(parents):
        fs.sync_directory(parent)


def _places(run_dir: Path, *, fs: FileSystem) -> Iterator[str]:
    """Yield the folders of a run in which the ledger makes temporary names; `""` is the run's own."""
    yield ""
    for folder in _FOLDERS:
        if is_own_folder(run_dir / folder, fs=fs):
            yield folder
            if folder == CHECKPOINTS:
                yield from _checkpoints(run_dir, fs=fs)


def _checkpoints(run_dir: Path, *, fs: FileSystem) -> Iterator[str]:
    for name in fs.list_directory(run_dir / CHECKPOINTS):
        if parse_checkpoint_name(name) and is_own_folder(run_dir / CHECKPOINTS / name, fs=fs):
            yield f"{CHECKPOINTS}/{name}"


def _temporaries_in(run_dir: Path, folder: str, *, fs: FileSystem) -> Iterator[str]:
    for name in fs.list_directory(run_dir / folder):
        if is_temporary_name(name):
            yield f"{folder}/{name}" if folder else name
