"""Accepting a finding, and taking that back."""

from __future__ import annotations

import os
from pathlib import Path

from ledger.audit.rules import RULES
from ledger.errors import EvidenceMissingError, RefusedError, UsageError
from ledger.maintain.verdicts import require_open
from ledger.records.layout import WAIVERS
from ledger.records.waivers import Waiver, Waivers, is_waivable
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.documents import read_document, write_document
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["add_waiver", "withdraw_waiver"]


def add_waiver(
    run_dir: str | os.PathLike[str],
    waiver: Waiver,
    *,
    allow_network_fs: bool = False,
    clock: Clock | None = None,
    fs: FileSystem = OS,
) -> Path:
    """Add a waiver to a run, in place of an older one of the same finding; returns where it lies.

    Raises:
        UsageError: there is no such rule, or the waiver is expired already.
        RefusedError: the rule is one of integrity, or the run is sealed.
        InvalidDocumentError: what is there already cannot be read; nothing was written.
        StorageError: the system refused to write.
    """
    if waiver.rule not in RULES:
        raise UsageError(f"there is no rule {waiver.rule}", advice="see ledger explain")
    if not is_waivable(waiver.rule):
        raise RefusedError(
            f"{waiver.rule} is a rule of integrity and cannot be waived",
            expected="any rule but LG1xx, LG402, LG503 and LG705",
        )
    if waiver.expires <= (clock or SystemClock()).now():
        raise UsageError(f"the waiver expired at {waiver.expires}", expected="a day to come")
    kept = [other for other in _read(run_dir, fs=fs) if not _is_same(other, waiver.rule, waiver.where)]
    return _write(run_dir, [*kept, waiver], allow_network_fs=allow_network_fs, fs=fs)


def withdraw_waiver(
    run_dir: str | os.PathLike[str],
    *,
    rule: str,
    where: str,
    allow_network_fs: bool = False,
    fs: FileSystem = OS,
) -> Path:
    """Take a waiver back; errors as `add_waiver`.

    Raises:
        EvidenceMissingError: there is none of this finding.
    """
    found = _read(run_dir, fs=fs)
    kept = [other for other in found if not _is_same(other, rule, where)]
    if len(kept) == len(found):
        raise EvidenceMissingError(f"holds no waiver of {rule} {where}", path=Path(run_dir) / WAIVERS)
    return _write(run_dir, kept, allow_network_fs=allow_network_fs, fs=fs)


def _is_same(waiver: Waiver, rule: str, where: str) -> bool:
    return (waiver.rule, waiver.where) == (rule, where)


def _read(run_dir: str | os.PathLike[str], *, fs: FileSystem) -> list[Waiver]:
    path = Path(run_dir) / WAIVERS
    return read_document(path, Waivers, fs=fs).waivers if fs.exists(path) else []


def _write(
    run_dir: str | os.PathLike[str], waivers: list[Waiver], *, allow_network_fs: bool, fs: FileSystem
) -> Path:
    folder = require_open(run_dir, allow_network_fs=allow_network_fs, fs=fs)
    write_document(folder / WAIVERS, Waivers(waivers=waivers), replace=True, fs=fs)
    return folder / WAIVERS
