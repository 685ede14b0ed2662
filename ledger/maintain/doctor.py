"""Whether a folder is fit for runs: its kind of file system, and what that really does when it is tried."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from ledger.audit.subject import require_folder
from ledger.errors import StorageError
from ledger.maintain.probes import PROBES, Check, run_probe
from ledger.storage.atomic import temporary_path
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.mounts import FileSystemClass, Mount, find_mount, is_asked_for
from ledger.storage.trees import remove_tree

__all__ = ["Check", "Diagnosis", "diagnose"]

_KIND_DETAILS: dict[FileSystemClass, tuple[Literal["ok", "warning", "failed"], str]] = {
    "local": ("ok", "a local file system"),
    "volatile": ("warning", "works, but what lies here need not outlive this boot or this container"),
    "network": (
        "failed",
        "another machine or a program serves it: refused unless asked for (--allow-network-fs)",
    ),
    "unknown": ("warning", "nothing is known about this kind; the checks below are all there is"),
}


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What `diagnose` found in one folder."""

    folder: str
    mount: Mount | None
    file_system_class: FileSystemClass
    checks: list[Check]

    @property
    def verdict(self) -> Literal["safe", "safe with warnings", "unsafe"]:
        """Whether runs may be written there."""
        found = {check.status for check in self.checks}
        if "failed" in found:
            return "unsafe"
        return "safe with warnings" if "warning" in found else "safe"


def diagnose(
    folder: str | os.PathLike[str], *, allow_network_fs: bool = False, fs: FileSystem = OS
) -> Diagnosis:
    """Try everything that the ledger relies on, in a temporary folder inside `folder` that is removed at the end.

    A network file system is unsafe unless it is asked for, which leaves a warning.

    Raises:
        UsageError: there is no such folder.
        StorageError: nothing can be written there at all.
    """
    place = require_folder(folder, what="runs")
    mount = find_mount(place)
    kind: FileSystemClass = "unknown" if mount is None else mount.file_system_class
    workshop = temporary_path(place / "doctor")
    fs.mkdir(workshop)
    try:
        checks = [_kind_check(mount, kind, is_asked_for=is_asked_for(is_allowed=allow_network_fs))]
        for name in PROBES:
            probed = workshop / name.replace(" ", "-")
            fs.mkdir(probed)
            checks.append(run_probe(name, probed, fs=fs))
    except BaseException:
        with suppress(StorageError):  # the first error is the one to report
            remove_tree(workshop, fs=fs)
        raise
    remove_tree(workshop, fs=fs)
    return Diagnosis(folder=str(place), mount=mount, file_system_class=kind, checks=checks)


def _kind_check(mount: Mount | None, kind: FileSystemClass, *, is_asked_for: bool) -> Check:
    status, detail = _KIND_DETAILS[kind]
    if kind == "network" and is_asked_for:
        status, detail = (
            "warning",
            "another machine or a program serves it: one writer and durability are its word",
        )
    if mount is None:
        return Check(name="file system", status=status, detail=f"the system does not tell which: {detail}")
    return Check(
        name="file system", status=status, detail=f"{mount.kind}, mounted on {mount.point}: {detail}"
    )
