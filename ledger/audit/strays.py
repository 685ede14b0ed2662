"""LG406: what lies in the run folder and is not ours."""

from __future__ import annotations

import re
import stat
from typing import ClassVar, Final

from ledger.audit.files import CheckpointFolder
from ledger.audit.stream import Checker, Stream
from ledger.records.documents import Evaluation
from ledger.records.events import SessionStart, Validation
from ledger.records.layout import (
    CHECKPOINTS,
    ENVIRONMENTS,
    EVALUATIONS,
    EXPORTS,
    LOG,
    MANIFEST,
    OWN_FOLDERS,
    OWN_NAMES,
    PARENT,
    QUARANTINE,
    RECIPES,
)
from ledger.storage.atomic import is_temporary_name
from ledger.storage.files import files_below
from ledger.storage.filesystem import OS

__all__ = ["StrayChecker"]

_DOCUMENT: Final = re.compile(r"([0-9a-f]{64})\.(json|diff)\Z")


class StrayChecker(Checker):
    """LG406: what lies in the run folder and is not ours."""

    rules: ClassVar[tuple[str, ...]] = ("LG406",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._digests: set[str] = set()
        """What the log names among recipes and environments; LG601 looks at it."""
        self._evaluations: set[str] = set()

    def on_session_start(self, event: SessionStart) -> None:
        """Note what a session names."""
        environment = self.stream.files.environment(event.environment_sha256).document
        difference = None if environment is None else environment.code.get("diff_sha256")
        named = (event.recipe_sha256, event.environment_sha256, difference)
        self._digests.update(name for name in named if isinstance(name, str))

    def on_val(self, event: Validation) -> None:
        """Note the evaluation that an event names."""
        if event.evaluation is not None:
            self._evaluations.add(event.evaluation.path)

    def finish(self) -> None:
        """Go through the names in the run folder, among the checkpoints and inside them."""
        files = self.stream.files
        self._check_top(files.names_in("."))
        self._check_documents()
        self._check_free_folders()
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
        return self.stream.is_live and not OS.exists(self.stream.files.run_dir / path)

    def _check_top(self, names: list[str]) -> None:
        lowered = {name.lower() for name in OWN_NAMES}
        for name in names:
            if name in OWN_NAMES:
                self._check_kind(name, is_folder=name in OWN_FOLDERS)
            elif is_temporary_name(name):
                self._warn_temporary(name)
            elif name.lower() in lowered:
                self.findings.add("LG406", "differs from a name of ours only by case", where=name)
            else:
                self.findings.add("LG406", "is not a file of a run: move it elsewhere", where=name)
        self._check_links()

    def _check_kind(self, where: str, *, is_folder: bool) -> None:
        """Check that a folder or a file of ours is one, and no link or pipe."""
        found = OS.look(self.stream.files.run_dir / where)
        if found is None:
            return  # it went since
        if not (stat.S_ISDIR(found.st_mode) if is_folder else stat.S_ISREG(found.st_mode)):
            kind = "folder" if is_folder else "regular file"
            self.findings.add("LG406", f"is no {kind}: move it out of the run", where=where)

    def _check_links(self) -> None:
        """Warn of a log that has a second name: what is done to it there is done to the run."""
        found = OS.look(self.stream.files.run_dir / LOG)
        if found is not None and stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
            self.findings.add(
                "LG406",
                f"is known by {found.st_nlink} names (hard links): replace it by a copy of its own",
                where=LOG,
                severity="warning",
            )

    def _check_documents(self) -> None:
        """Check what lies in the folders whose files are named by digest, and among the evaluations."""
        for folder in (RECIPES, ENVIRONMENTS):
            for name in self.stream.files.names_in(folder):
                self._check_document(f"{folder}/{name}", _digest_in(folder, name))
        for folder in (EXPORTS, PARENT):
            for name in filter(is_temporary_name, self.stream.files.names_in(folder)):
                self._warn_temporary(f"{folder}/{name}")
        for name in self.stream.files.names_in(EVALUATIONS):
            where = f"{EVALUATIONS}/{name}"
            if is_temporary_name(name):
                self._warn_temporary(where)
                continue
            loaded = self.stream.files.load(where, Evaluation)
            if loaded.document is None and where not in self._evaluations:
                self.findings.add("LG406", f"is no evaluation: {loaded.error}", where=where)

    def _check_free_folders(self) -> None:
        """Check that where files may bear any name they are files."""
        files = self.stream.files
        for folder in filter(files.is_folder, (EXPORTS, QUARANTINE)):
            for name in files_below(files.run_dir / folder):
                self._check_kind(f"{folder}/{name}", is_folder=False)

    def _check_document(self, where: str, sha256: str | None) -> None:
        if is_temporary_name(where.rpartition("/")[2]):
            self._warn_temporary(where)
        elif sha256 is None:
            self.findings.add(
                "LG406", "does not bear the name of a digest: move it out of the run", where=where
            )
        elif sha256 not in self._digests and self.stream.files.digest(where) != sha256:
            self.findings.add("LG406", "is not what its name says: move it out of the run", where=where)

    def _warn_temporary(self, where: str) -> None:
        if not self.stream.is_live:
            self.findings.add(
                "LG406",
                "is what an interrupted write left; it is never read",
                where=where,
                severity="warning",
            )


def _digest_in(folder: str, name: str) -> str | None:
    """Return the digest in the name of a recipe, an environment or the difference of code beside one."""
    match = _DOCUMENT.match(name)
    if match is None or (match[2] == "diff" and folder != ENVIRONMENTS):
        return None
    return match[1]
