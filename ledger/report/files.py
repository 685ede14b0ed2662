"""A report as a file: written whole, over nothing but an older report, and never into a run."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from ledger.dataset.manifest import METADATA_NAME
from ledger.errors import RefusedError, UsageError
from ledger.records.layout import LOG, RUN, SEAL
from ledger.report.page import BEGINNING
from ledger.storage.atomic import replace_file
from ledger.storage.files import is_folder, opened_regular_file
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["require_place", "write_report"]

_RECORDS: Final = (LOG, RUN, SEAL)
"""Files by which a run is known; a report anywhere in it would be foreign to it."""


def require_place(path: str | os.PathLike[str], *, fs: FileSystem = OS) -> Path:
    """Return where a report may be written.

    Raises:
        UsageError: the path is empty, or its folder does not exist.
        RefusedError: it lies in a run or a dataset, or a file that is no report stands there.
        UnsafeError: something that is no regular file stands there.
        StorageError: the system refused.
    """
    if not os.fspath(path):
        raise UsageError("the path is empty", expected="a file for the report")
    target = Path(path)
    if not is_folder(target.parent, fs=fs):
        raise UsageError("its folder does not exist", path=target, advice="make the folder first")
    owner = _owner(target.parent.resolve(), fs=fs)
    if owner is not None:
        raise RefusedError(
            "a report does not belong into a run or a dataset, which hold their own files alone",
            path=target,
            expected=f"a place outside {owner}",
            advice="choose another with -o",
        )
    if fs.exists(target) and not _is_report(target, fs=fs):
        raise RefusedError(
            "a file that is no report stands there and is not replaced",
            path=target,
            advice="choose another name with -o",
        )
    return target


def write_report(path: str | os.PathLike[str], html: str, *, fs: FileSystem = OS) -> Path:
    """Write a report whole, in place of an older one if there is one; returns where it is.

    Raises:
        UsageError, RefusedError, UnsafeError: as `require_place`.
        StorageError: the system refused; an older report is still there, whole.
    """
    target = require_place(path, fs=fs)
    replace_file(target, html.encode("utf-8"), fs=fs)
    return target


def _owner(folder: Path, *, fs: FileSystem) -> Path | None:
    """Return the run that holds a folder, or the folder if it is a dataset; null for any other."""
    if _is_file(folder / METADATA_NAME, fs=fs):
        return folder
    return next(
        (one for one in (folder, *folder.parents) if any(_is_file(one / name, fs=fs) for name in _RECORDS)),
        None,
    )


def _is_file(path: Path, *, fs: FileSystem) -> bool:
    found = fs.look(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def _is_report(path: Path, *, fs: FileSystem) -> bool:
    beginning = BEGINNING.encode("utf-8")
    with opened_regular_file(path, fs=fs) as descriptor:
        return fs.pread(descriptor, len(beginning), 0, path=path) == beginning
