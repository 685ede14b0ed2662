"""The temporary folder beside a dataset in which it is prepared, and what killed preparations left there.

A live preparation holds a lock on its folder. One that was killed does not: the next preparation of the same dataset
goes on in its folder. Nothing else is ever removed, and no folder whose owner is alive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ledger.errors import LedgerError, LockedError, RefusedError, StorageError
from ledger.storage.atomic import is_temporary_name, publish_folder, temporary_path
from ledger.storage.files import ensure_folders, is_own_folder
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["Workspace", "open_workspace"]

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class Workspace:
    """A locked temporary folder that becomes the dataset."""

    def __init__(self, directory: Path, *, target: Path, fs: FileSystem) -> None:
        self.directory = directory
        self.is_worth_keeping = False
        """Whether a later preparation can go on with what is in it."""
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
    """Take over the temporary folder that a killed preparation of `target` left, or make one.

    If the block fails, it is removed unless it is worth keeping.

    Raises:
        LockedError: another process is preparing the same dataset.
        StorageError: the system refuses.
    """
    ensure_folders(target.parent, fs=fs)
    directory = _take_over(target, fs=fs)
    if directory is None:
        directory = temporary_path(target)
        fs.mkdir(directory)
    workspace = Workspace(directory, target=target, fs=fs)
    try:
        with fs.opened(directory, _FOLDER) as descriptor:
            _lock(descriptor, directory=directory, target=target, fs=fs)
            yield workspace
    except LockedError:
        raise
    except BaseException:
        if not workspace.is_worth_keeping:
            with suppress(LedgerError):  # the first error is the one to report
                _remove_folder(directory, fs=fs)
        raise


def _take_over(target: Path, *, fs: FileSystem) -> Path | None:
    """Return what the first killed preparation of `target` left, and remove what others did."""
    names = [
        name
        for name in fs.list_directory(target.parent)
        if is_temporary_name(name) and name.rpartition(".tmp-")[0] == f".{target.name}"
    ]
    found: Path | None = None
    for name in names:
        directory = target.parent / name
        _require_dead(directory, target=target, fs=fs)
        if found is None:
            found = directory
        else:
            _remove_folder(directory, fs=fs)
    if len(names) > 1:  # beside a dataset nobody would look for them again
        fs.sync_directory(target.parent)
    return found


def _require_dead(directory: Path, *, target: Path, fs: FileSystem) -> None:
    if not is_own_folder(directory, fs=fs):
        problem = "something that is no folder has the name of a preparation's temporary folder"
        raise RefusedError(problem, path=directory, advice="move it elsewhere")
    with fs.opened(directory, _FOLDER) as descriptor:
        _lock(descriptor, directory=directory, target=target, fs=fs)
    _require_flat(directory, fs=fs)


def _lock(descriptor: int, *, directory: Path, target: Path, fs: FileSystem) -> None:
    if not fs.lock(descriptor, path=directory):
        problem = "another process is preparing this dataset"
        raise LockedError(problem, path=target, advice=f"wait for it, or end it; it works in {directory}")


def _remove_folder(directory: Path, *, fs: FileSystem) -> None:
    """Remove a flat folder; one that holds a folder is not ours and stays."""
    if not is_own_folder(directory, fs=fs):
        return
    _require_flat(directory, fs=fs)
    for name in fs.list_directory(directory):
        fs.unlink(directory / name)
    fs.rmdir(directory)


def _require_flat(directory: Path, *, fs: FileSystem) -> None:
    for name in fs.list_directory(directory):
        if is_own_folder(directory / name, fs=fs):
            problem = "a folder stands in what a preparation left; it is not removed"
            raise StorageError(problem, path=directory / name, advice=f"remove {directory} yourself")
