"""What a command was pointed at: a run, a dataset, a checkpoint, or something else, said clearly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ledger.dataset.manifest import METADATA_NAME
from ledger.errors import EvidenceMissingError, InvalidDocumentError, UsageError
from ledger.records.layout import LOCK, LOG, MANIFEST, RUN, parse_checkpoint_name
from ledger.storage.atomic import is_temporary_name
from ledger.storage.files import is_folder
from ledger.storage.filesystem import OS

__all__ = ["find_run", "is_checkpoint", "is_dataset", "is_run", "require_folder"]

RUN_FILES: Final = (LOG, RUN, LOCK)
LISTED_RUNS: Final = 10


def require_folder(path: str | os.PathLike[str], *, what: str) -> Path:
    """Return the path of an existing folder.

    Raises:
        UsageError: the path is empty, absent or no folder.
        StorageError: the system refused to look.
    """
    text = os.fspath(path)
    if not text:
        raise UsageError("the path is empty", expected=f"the folder of {what}")
    folder = Path(text)
    if not OS.exists(folder):
        raise UsageError(
            "does not exist", path=text, expected=f"the folder of {what}", advice="check the path"
        )
    if not is_folder(folder):
        raise UsageError("is no folder", path=text, expected=f"the folder of {what}")
    return folder


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds a file that only a run has."""
    return any(OS.exists(folder / name) for name in RUN_FILES)


def is_dataset(folder: Path) -> bool:
    """Tell whether a folder is a prepared dataset."""
    return OS.exists(folder / METADATA_NAME)


def is_checkpoint(folder: Path) -> bool:
    """Tell whether a folder is named like a checkpoint or holds a checkpoint's manifest."""
    return parse_checkpoint_name(folder.name) is not None or OS.exists(folder / MANIFEST)


def find_run(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a run.

    Raises:
        UsageError: the path is empty, absent, no folder, or a folder of runs.
        EvidenceMissingError: the folder is empty, as one that a crash left before a run began in it.
        InvalidDocumentError: the folder holds nothing of a run.
        StorageError: the system refused to look.
    """
    folder = require_folder(path, what="a run")
    if is_run(folder):
        return folder
    names = [name for name in OS.list_directory(folder) if not is_temporary_name(name)]
    if not names:
        raise EvidenceMissingError(
            "is empty: no run has begun in it", path=folder, expected="a run folder", advice="check the path"
        )
    runs = [name for name in names if is_folder(folder / name) and is_run(folder / name)]
    if runs:
        count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        listed = ", ".join(runs[:LISTED_RUNS]) + (", …" if len(runs) > LISTED_RUNS else "")
        raise UsageError(
            f"holds {count}: {listed}", path=folder, expected="one run", advice="name one of them"
        )
    raise InvalidDocumentError(
        "is not a run: it has neither metrics.jsonl nor run.json", path=folder, expected="a run folder"
    )
