"""Why a stage would run, or would not: what stands in its folder, and how it differs from the nearest that is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ledger.errors import LedgerError, StorageError
from ledger.pilot.fingerprint import Fingerprint, changed
from ledger.pilot.plan import RECORD, Plan
from ledger.records.fields import Json
from ledger.records.pilot import StageRecord
from ledger.storage.documents import read_document
from ledger.storage.files import is_folder
from ledger.storage.filesystem import OS

__all__ = ["Explanation", "Standing", "explain_pilot"]

Standing: TypeAlias = Literal["passed", "failed", "begun", "absent", "unreadable", "unknown"]
"""What stands in a stage's folder; unknown: its folder's name depends on a dataset that is not there."""

_WORDS: dict[Standing, str] = {
    "passed": "is there, passed",
    "failed": "is there, FAILED; it stays as evidence",
    "begun": "was begun and would go on",
    "absent": "would be built",
    "unreadable": "is there, but its record cannot be read",
    "unknown": "would be built once the corpus is prepared; what is there of it is not known before",
}
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, kw_only=True)
class Change:
    """One input in which a stage differs from another of its name."""

    name: str
    before: Json
    after: Json

    def __str__(self) -> str:
        return f"{self.name}: {_short(self.before)} -> {_short(self.after)}"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What would happen to one stage."""

    stage: str
    standing: Standing
    folder: str | None
    nearest: str | None = None
    """Folder of the recorded stage of this name that differs least."""
    changes: list[Change] = field(default_factory=list)
    """In what it differs from that one."""

    def lines(self) -> Iterator[str]:
        """Yield it in words."""
        yield f"{self.stage}: {_WORDS[self.standing]}{f' ({self.folder})' if self.folder else ''}"
        if self.nearest is not None:
            yield f"  differs from {self.nearest} in"
            yield from (f"    {change}" for change in self.changes)


def explain_pilot(plan: Plan) -> list[Explanation]:
    """Say of each stage, in order, what would happen to it; nothing is built or read but records.

    Raises:
        ConfigError, StageProcessError: the configuration is not one.
    """
    fingerprints = plan.fingerprints()
    return [
        _explain(plan.root, fingerprints[name])
        if name in fingerprints
        else Explanation(stage=name, standing="unknown", folder=None)
        for name in plan.names
    ]


def _explain(root: Path, fingerprint: Fingerprint) -> Explanation:
    folder = root / fingerprint.folder
    standing = _standing(folder)
    if standing != "absent":
        return Explanation(stage=fingerprint.stage, standing=standing, folder=fingerprint.folder)
    candidates = {name: _changes(record, fingerprint) for name, record in _recorded(root, fingerprint.stage)}
    nearest = min(candidates, key=lambda name: (len(candidates[name]), name), default=None)
    return Explanation(
        stage=fingerprint.stage,
        standing=standing,
        folder=fingerprint.folder,
        nearest=nearest,
        changes=candidates[nearest] if nearest else [],
    )


def _standing(folder: Path) -> Standing:
    if not OS.exists(folder / RECORD):
        return "begun" if is_folder(folder) else "absent"
    try:
        return "passed" if read_document(folder / RECORD, StageRecord).passed else "failed"
    except StorageError:
        raise
    except LedgerError:
        return "unreadable"


def _recorded(root: Path, stage: str) -> Iterator[tuple[str, StageRecord]]:
    for name in OS.list_directory(root) if is_folder(root) else ():
        if name.rpartition("-")[0] == stage and _standing(root / name) in ("passed", "failed"):
            yield name, read_document(root / name / RECORD, StageRecord)


def _changes(record: StageRecord, fingerprint: Fingerprint) -> list[Change]:
    before = {**record.inputs, **{f"version of {part}": version for part, version in record.parts.items()}}
    after = {
        **fingerprint.inputs,
        **{f"version of {part}": version for part, version in fingerprint.parts.items()},
    }
    return [
        Change(name=name, before=before.get(name), after=after.get(name)) for name in changed(before, after)
    ]


def _short(value: Json) -> str:
    text = "-" if value is None else json.dumps(value, ensure_ascii=True)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
