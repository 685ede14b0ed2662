"""What a command was pointed at: a run, a dataset, a checkpoint, or something else, said clearly."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ledger.dataset.manifest import METADATA_NAME
from ledger.errors import InvalidDocumentError, UsageError
from ledger.records.layout import LOCK, LOG, MANIFEST, RUN, parse_checkpoint_name

__all__ = ["find_run", "is_checkpoint", "is_dataset", "is_run", "require_folder"]

RUN_FILES: Final = (LOG, RUN, LOCK)
LISTED_RUNS: Final = 10


def require_folder(path: str | os.PathLike[str], *, what: str) -> Path:
    """Return the path of an existing folder.

    Raises:
        UsageError: the path is empty, absent or no folder.
    """
    text = os.fspath(path)
    if not text:
        raise UsageError("the path is empty", expected=f"the folder of {what}")
    folder = Path(text)
    if not os.path.lexists(folder):
        raise UsageError(
            "does not exist", path=text, expected=f"the folder of {what}", advice="check the path"
        )
    if not folder.is_dir():
        raise UsageError("is no folder", path=text, expected=f"the folder of {what}")
    return folder


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds a file that only a run has."""
    return any(os.path.lexists(folder / name) for name in RUN_FILES)


def is_dataset(folder: Path) -> bool:
    """Tell whether a folder is a prepared dataset."""
    return os.path.lexists(folder / METADATA_NAME)


def is_checkpoint(folder: Path) -> bool:
    """Tell whether a folder is named like a checkpoint or holds a checkpoint's manifest."""
    return parse_checkpoint_name(folder.name) is not None or os.path.lexists(folder / MANIFEST)


def find_run(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a run.

    Raises:
        UsageError: the path is empty, absent, no folder, or a folder of runs.
        InvalidDocumentError: the folder holds nothing of a run.
    """
    folder = require_folder(path, what="a run")
    if is_run(folder):
        return folder
    runs = sorted(child.name for child in folder.iterdir() if child.is_dir() and is_run(child))
    if runs:
        count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        listed = ", ".join(runs[:LISTED_RUNS]) + (", …" if len(runs) > LISTED_RUNS else "")
        raise UsageError(
            f"holds {count}: {listed}", path=folder, expected="one run", advice="name one of them"
        )
    raise InvalidDocumentError(
        "is not a run: it has neither metrics.jsonl nor run.json", path=folder, expected="a run folder"
    )
