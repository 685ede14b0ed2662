"""Removing what is of no use any more: a file, a link or a whole folder."""

from __future__ import annotations

import stat
from pathlib import Path

from ledger.storage.filesystem import FileSystem

__all__ = ["remove_tree"]


def remove_tree(path: Path, *, fs: FileSystem) -> None:
    """Remove a file, a link or a whole folder; a link inside loses its name and what it leads to stays.

    Raises:
        StorageError: the system refused; a part may be left.
    """
    pending, folders = [path], []
    while pending:
        found = pending.pop()
        if stat.S_ISDIR(fs.stat(found).st_mode):
            folders.append(found)
            pending += [found / name for name in fs.list_directory(found)]
        else:
            fs.unlink(found)
    for folder in reversed(folders):
        fs.rmdir(folder)
