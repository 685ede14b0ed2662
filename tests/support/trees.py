"""Everything that lies in a folder, so that a test can say that nothing changed."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One file, folder or link: what it is, when it was changed, what it holds."""

    mode: int
    changed: int
    content: bytes | str | None


def snapshot(folder: Path, *, without: frozenset[str] = frozenset()) -> dict[str, Entry]:
    """Return every path below a folder, and the folder itself as `.`, but for the names in `without`."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        name = str(path.relative_to(folder))
        if name in without:
            continue
        status = path.lstat()
        found[name] = Entry(status.st_mode, status.st_mtime_ns, _content(path, status.st_mode))
    return found


def contents(folder: Path, *, without: frozenset[str] = frozenset()) -> dict[str, bytes | str | None]:
    """Return what every path below a folder holds, whenever it was written."""
    return {name: entry.content for name, entry in snapshot(folder, without=without).items()}


def _content(path: Path, mode: int) -> bytes | str | None:
    if stat.S_ISREG(mode):
        return path.read_bytes()
    return str(path.readlink()) if stat.S_ISLNK(mode) else None
