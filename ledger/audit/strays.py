"""LG406: what lies in the run folder and is not ours."""

from __future__ import annotations

import os
from typing import ClassVar, Final

from ledger.audit.files import CheckpointFolder
from ledger.audit.lineage import PARENT_MANIFEST
from ledger.audit.stream import Checker
from ledger.records.layout import (
    CHECKPOINTS,
    ENVIRONMENTS,
    EVALUATIONS,
    LOCK,
    LOG,
    MANIFEST,
    QUARANTINE,
    RECIPES,
    RUN,
    SEAL,
)
from ledger.storage.atomic import is_temporary_name

__all__ = ["StrayChecker"]

OWN_NAMES: Final = frozenset(
    {
        CHECKPOINTS,
        ENVIRONMENTS,
        EVALUATIONS,
        LOCK,
        LOG,
        QUARANTINE,
        RECIPES,
        RUN,
        SEAL,
        PARENT_MANIFEST.partition("/")[0],
        "exports",
        "logs",
        "recipe.lock.json",
        "verdict.json",
        "waivers.json",
    }
)
"""What may lie in a run folder."""


class StrayChecker(Checker):
    """LG406: what lies in the run folder and is not ours."""

    rules: ClassVar[tuple[str, ...]] = ("LG406",)

    def finish(self) -> None:
        """Go through the names in the run folder, among the checkpoints and inside them."""
        files = self.stream.files
        self._check_top(files.names_in("."))
        for name in files.checkpoint_names:
            path = f"{CHECKPOINTS}/{name}"
            if is_temporary_name(name):
                self._warn_temporary(path)
            elif path not in files.checkpoints and not self._is_gone(path):
                self.findings.add("LG406", "is not a checkpoint: move it out of the run", where=path)
        spoken_of = {path for path, _ in self.stream.captured}
        for path, folder in files.checkpoints.items():
            self._check_inside(path, folder, is_spoken_of=path in spoken_of)

    def _check_inside(self, path: str, folder: CheckpointFolder, *, is_spoken_of: bool) -> None:
        manifest = folder.manifest.document
        if manifest is None:
            if not is_spoken_of and not self._is_gone(path):
                self.findings.add(
                    "LG406",
                    f"is named like a checkpoint but is not complete: {folder.manifest.error}",
                    where=path,
                )
            return
        for name in folder.names:
            if name == MANIFEST or name in manifest.files:
                continue
            if is_temporary_name(name):
                self._warn_temporary(f"{path}/{name}")
            else:
                self.findings.add(
                    "LG406", "is not listed in the checkpoint's manifest", where=f"{path}/{name}"
                )

    def _is_gone(self, path: str) -> bool:
        """Tell whether a writer's retention removed what was listed."""
        return self.stream.is_live and not os.path.lexists(self.stream.files.run_dir / path)

    def _check_top(self, names: list[str]) -> None:
        lowered = {name.lower() for name in OWN_NAMES}
        for name in names:
            if name in OWN_NAMES:
                continue
            if is_temporary_name(name):
                self._warn_temporary(name)
            elif name.lower() in lowered:
                self.findings.add("LG406", "differs from a name of ours only by case", where=name)
            else:
                self.findings.add(
                    "LG406", "is not a file of a run: move it elsewhere", where=name, severity="warning"
                )

    def _warn_temporary(self, where: str) -> None:
        if not self.stream.is_live:
            self.findings.add(
                "LG406",
                "is what an interrupted write left; it is never read",
                where=where,
                severity="warning",
            )
