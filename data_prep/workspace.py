"""The temporary folder beside a dataset in which it is prepared, and what killed preparations left there.

A live preparation holds a lock on its folder. One that was killed does not: its folder is removed by the next
preparation of the same dataset. Nothing else is ever removed, and no folder whose owner is alive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ledger.errors import LedgerError, LockedError, RefusedError, StorageError
from ledger.storage.atomic import is_temporary_name, publish_folder, temporary_path
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["Workspace", "open_workspace", "remove_leftovers"]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Workspace:
    """A locked temporary folder that becomes the dataset."""

    def __init__(self, directory: Path, *, target: Path, fs: FileSystem) -> None:
        self.directory = directory
        self._target = target
        self._fs = fs

    def publish(self) -> None:
        """Give the folder its final name; everything in it must be written and synced.

        Raises:
            RefusedError: something stands there.
            StorageError: the system refuses.
        """
        publish_folder(self.directory, self._target, fs=self._fs)


@contextmanager
def open_workspace(target: Path, *, fs: FileSystem = OS) -> Iterator[Workspace]:
    """Make a temporary folder for a dataset at `target`; it is removed if the block fails or does not publish.

    Raises:
        LockedError: another process is preparing the same dataset.
        StorageError: the system refuses.
    """
    remove_leftovers(target, fs=fs)
    directory = temporary_path(target)
    fs.mkdir(directory)
    try:
        with fs.opened(directory, _FOLDER) as descriptor:
            _lock(descriptor, directory=directory, target=target, fs=fs)
            yield Workspace(directory, target=target, fs=fs)
    except BaseException:
        with suppress(LedgerError):  # the first error is the one to report; the next preparation removes it
            _remove_folder(directory, fs=fs)
        raise


def remove_leftovers(target: Path, *, fs: FileSystem = OS) -> list[Path]:
    """Remove the temporary folders that killed preparations of `target` left, and return them.

    Raises:
        LockedError: one of them belongs to a preparation that is running.
        StorageError: the system refuses.
    """
    removed = []
    for name in fs.list_directory(target.parent):
        if is_temporary_name(name) and name.rpartition(".tmp-")[0] == f".{target.name}":
            _remove_if_dead(target.parent / name, target=target, fs=fs)
            removed.append(target.parent / name)
    return removed


def _remove_if_dead(directory: Path, *, target: Path, fs: FileSystem) -> None:
    if directory.is_symlink() or not directory.is_dir():
        problem = "something that is no folder has the name of a preparation's temporary folder"
        raise RefusedError(problem, path=directory, advice="move it elsewhere")
    with fs.opened(directory, _FOLDER) as descriptor:
        _lock(descriptor, directory=directory, target=target, fs=fs)
        _remove_folder(directory, fs=fs)


def _lock(descriptor: int, *, directory: Path, target: Path, fs: FileSystem) -> None:
    if not fs.lock(descriptor, path=directory):
        problem = "another process is preparing this dataset"
        raise LockedError(problem, path=target, advice=f"wait for it, or end it; it works in {directory}")


def _remove_folder(directory: Path, *, fs: FileSystem) -> None:
    """Remove a flat folder; one that holds a folder is not ours and stays."""
    if not directory.is_dir():
        return
    for name in fs.list_directory(directory):
        if (directory / name).is_dir() and not (directory / name).is_symlink():
            problem = "a folder stands in what a preparation left; it is not removed"
            raise StorageError(problem, path=directory / name, advice=f"remove {directory} yourself")
    for name in fs.list_directory(directory):
        fs.unlink(directory / name)
    fs.rmdir(directory)
