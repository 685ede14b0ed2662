"""A pilot's folder read from outside: which stages it holds, what each recorded, where their runs lie."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.audit.files import inside
from ledger.audit.subject import is_dataset
from ledger.errors import EvidenceMissingError, LedgerError, StorageError
from ledger.pilot.kinds import STAGES
from ledger.pilot.plan import PILOT, RECORD
from ledger.records.layout import LOG, RUN
from ledger.records.pilot import PilotRecord, StageRecord
from ledger.storage.documents import read_document
from ledger.storage.files import is_folder
from ledger.storage.filesystem import OS

__all__ = ["FoundStage", "find_stages", "is_pilot"]

_RUNS_OF_A_STAGE: Final = ("run", "control")
"""Where a stage that did not finish may have left a run."""


@dataclass(frozen=True, kw_only=True)
class FoundStage:
    """A stage's folder: its record, or the error that stands in its place, and the runs in it by name."""

    name: str
    record: StageRecord | None
    error: LedgerError | None
    runs: dict[str, Path]

    @property
    def is_finished(self) -> bool:
        """Whether there is a record, readable or not."""
        return not isinstance(self.error, EvidenceMissingError)


def is_pilot(folder: Path) -> bool:
    """Tell whether a folder is a pilot's: no run and no dataset, but a pilot.json or at least one stage in it.

    Raises:
        StorageError: the system refused to look.
    """
    return (
        is_folder(folder)
        and not is_dataset(folder)
        and not _holds(folder, LOG, RUN)
        and (OS.exists(folder / PILOT) or bool(_all_stages(folder)))
    )


def find_stages(root: Path) -> list[FoundStage]:
    """Return the stages of a pilot in the order in which they run.

    Where pilot.json says which stages belong to the configuration that was rehearsed last, only these; else all there
    are, those of other names behind.

    Raises:
        InvalidDocumentError, NewerVersionError: pilot.json is malformed, or newer.
        StorageError: the system refused to read.
    """
    if not OS.exists(root / PILOT):
        return [_read(folder) for folder in _all_stages(root)]
    listed = [root / stage.folder for stage in read_document(root / PILOT, PilotRecord).stages]
    return [_read(folder) for folder in listed if is_folder(folder)]


def _all_stages(root: Path) -> list[Path]:
    folders = [root / name for name in OS.list_directory(root)]
    found = [
        folder
        for folder in folders
        if stat.S_ISDIR(OS.stat(folder).st_mode) and (_holds(folder, RECORD) or _is_begun(folder))
    ]
    return sorted(found, key=lambda folder: (_place(folder.name), folder.name))


def _is_begun(folder: Path) -> bool:
    return _place(folder.name) < len(STAGES) and not _holds(folder, LOG, RUN)


def _holds(folder: Path, *names: str) -> bool:
    return any(OS.exists(folder / name) for name in names)


def _place(name: str) -> int:
    stage = name.split("-", maxsplit=1)[0]
    return STAGES.index(stage) if stage in STAGES else len(STAGES)


def _read(folder: Path) -> FoundStage:
    try:
        record = read_document(folder / RECORD, StageRecord)
    except StorageError:
        raise
    except LedgerError as error:
        begun = {name: folder / name for name in _RUNS_OF_A_STAGE if _holds(folder / name, LOG)}
        return FoundStage(name=folder.name, record=None, error=error, runs=begun)
    runs = {run.path: path for run in record.runs if (path := inside(folder, run.path)) is not None}
    return FoundStage(name=folder.name, record=record, error=None, runs=runs)
