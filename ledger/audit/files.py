"""What lies in a run folder beside the log, read once; what is no proper record is kept as the error that it is.

What the system refuses to read is another matter: nothing can be said of it, so that is raised.

A writer may be at work meanwhile. The log is always ahead of run.json and of the checkpoints, so these are looked at
*before* the log is read: then nothing listed lies beyond what was read. What appears later is none of the audit's
business, unless the log that was read speaks of it.

Paths inside records are never trusted: one that would leave the run folder counts as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from ledger.errors import EvidenceMissingError, LedgerError, NewerVersionError, StorageError
from ledger.records.base import Document
from ledger.records.documents import (
    CheckpointManifest,
    Environment,
    Evaluation,
    Recipe,
    RunDocument,
    Seal,
    TrainerState,
)
from ledger.records.fields import Json
from ledger.records.layout import (
    CHECKPOINTS,
    ENVIRONMENTS,
    EVALUATIONS,
    MANIFEST,
    PARENT_MANIFEST,
    RECIPES,
    RUN,
    SEAL,
    TRAINER_STATE,
    parse_checkpoint_name,
)
from ledger.records.sections import RecipeSections, parse_sections
from ledger.storage.atomic import is_temporary_name
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import parse_document
from ledger.storage.files import is_own_folder, read_regular_file
from ledger.storage.filesystem import OS

__all__ = ["CheckpointFolder", "Loaded", "RunFiles", "inside"]

MAX_DOCUMENT_BYTES = 8 * 2**20
MAX_MANIFEST_BYTES = 64 * 2**20

DocumentT = TypeVar("DocumentT", bound=Document)


@dataclass(frozen=True, kw_only=True)
class Loaded(Generic[DocumentT]):
    """A document as found: its content and digest, or why there is none."""

    path: str
    """Relative to the run folder."""
    document: DocumentT | None = None
    sha256: str | None = None
    error: LedgerError | None = None

    @property
    def is_absent(self) -> bool:
        """Whether there is no such file."""
        return isinstance(self.error, EvidenceMissingError)


@dataclass(frozen=True, kw_only=True)
class CheckpointFolder:
    """A folder with a checkpoint's name."""

    path: str
    """Relative to the run folder, as events name it."""
    folder: Path
    step: int
    session: int
    manifest: Loaded[CheckpointManifest]
    names: tuple[str, ...] = field(default=())
    """What lies in it."""


def inside(folder: Path, relative: str) -> Path | None:
    """Return the path of a file that a record names, None if it would leave the folder."""
    pure = PurePosixPath(relative)
    parts = pure.parts
    if not parts or pure.is_absolute() or ".." in parts or "\\" in relative or "\0" in relative:
        return None
    return folder.joinpath(*parts)


class RunFiles:
    """The documents of one run folder, loaded as they are asked for."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        self._recipes: dict[str, Loaded[Recipe]] = {}
        self._environments: dict[str, Loaded[Environment]] = {}
        self._sections: dict[str, RecipeSections | str] = {}

    @cached_property
    def run(self) -> Loaded[RunDocument]:
        """run.json."""
        return self.load(RUN, RunDocument)

    @cached_property
    def seal(self) -> Loaded[Seal]:
        """seal.json."""
        return self.load(SEAL, Seal, max_bytes=MAX_MANIFEST_BYTES)

    @cached_property
    def parent_manifest(self) -> Loaded[CheckpointManifest]:
        """The manifest of the other run's checkpoint that a branch run began at."""
        return self.load(PARENT_MANIFEST, CheckpointManifest, max_bytes=MAX_MANIFEST_BYTES)

    def recipe(self, sha256: str) -> Loaded[Recipe]:
        """Return the recipe with this digest."""
        if sha256 not in self._recipes:
            self._recipes[sha256] = self.load(f"{RECIPES}/{sha256}.json", Recipe)
        return self._recipes[sha256]

    def environment(self, sha256: str) -> Loaded[Environment]:
        """Return the environment with this digest."""
        if sha256 not in self._environments:
            self._environments[sha256] = self.load(f"{ENVIRONMENTS}/{sha256}.json", Environment)
        return self._environments[sha256]

    def sections(self, sha256: str) -> RecipeSections | None:
        """Return the sections of a recipe that rules read; None where it cannot be read (see `section_problem`)."""
        found = self._load_sections(sha256)
        return found if isinstance(found, RecipeSections) else None

    def config(self, sha256: str) -> Mapping[str, Json]:
        """Return the configuration of a recipe, empty where it cannot be read."""
        document = self.recipe(sha256).document
        return {} if document is None else document.config

    def section_problem(self, sha256: str) -> str | None:
        """Return what is wrong with the sections of a recipe, None if nothing is."""
        found = self._load_sections(sha256)
        return found if isinstance(found, str) else None

    def _load_sections(self, sha256: str) -> RecipeSections | str:
        if sha256 not in self._sections:
            recipe = self.recipe(sha256)
            try:
                self._sections[sha256] = (
                    "the recipe cannot be read"
                    if recipe.document is None
                    else parse_sections(recipe.document.config)
                )
            except ValueError as error:
                self._sections[sha256] = str(error)
        return self._sections[sha256]

    def load(
        self, relative: str, model: type[DocumentT], *, max_bytes: int = MAX_DOCUMENT_BYTES
    ) -> Loaded[DocumentT]:
        """Read one document of the run folder.

        Raises:
            NewerVersionError: it was written by a newer version and is not half-read.
            StorageError: the system refused to read it.
        """
        path = inside(self.run_dir, relative)
        if path is None:
            return Loaded(
                path=relative, error=EvidenceMissingError("leads out of the run folder", path=relative)
            )
        digest = None
        try:
            data = read_regular_file(path, max_bytes=max_bytes)
            digest = sha256_hex(data)
            return Loaded(path=relative, sha256=digest, document=parse_document(data, model, path=path))
        except (NewerVersionError, StorageError):
            raise
        except LedgerError as error:
            return Loaded(path=relative, sha256=digest, error=error)

    def digest(self, relative: str, *, max_bytes: int = 2**30) -> str | LedgerError:
        """Return the digest of a file that a record names, or why there is none.

        Raises:
            StorageError: the system refused to read it.
        """
        path = inside(self.run_dir, relative)
        if path is None:
            return EvidenceMissingError("leads out of the run folder", path=relative)
        try:
            return sha256_hex(read_regular_file(path, max_bytes=max_bytes))
        except StorageError:
            raise
        except LedgerError as error:
            return error

    def take_listing(self) -> None:
        """Look at run.json, the seal and the checkpoints now, once; to be called before the log is read."""
        _ = self.run, self.seal, self.checkpoints

    def look_again(self, path: str) -> None:
        """Take a checkpoint into the listing that appeared after it was taken, because the log speaks of it."""
        if path not in self.checkpoints and path.rpartition("/")[0] == CHECKPOINTS:
            found = self.checkpoint(path)
            if found is not None:
                self.checkpoints[path] = found

    @cached_property
    def checkpoint_names(self) -> list[str]:
        """The names among the checkpoints when the listing was taken."""
        return self.names_in(CHECKPOINTS)

    @cached_property
    def checkpoints(self) -> dict[str, CheckpointFolder]:
        """Every folder (no link) with a checkpoint's name, by its path as events name it."""
        candidates = [self.checkpoint(f"{CHECKPOINTS}/{name}") for name in self.checkpoint_names]
        return {found.path: found for found in candidates if found is not None}

    def checkpoint(self, path: str) -> CheckpointFolder | None:
        """Return the checkpoint folder at a relative path; None for a link, a file or another name."""
        folder = self.run_dir / path
        parsed = parse_checkpoint_name(folder.name)
        if parsed is None or not is_own_folder(folder):
            return None
        return CheckpointFolder(
            path=path,
            folder=folder,
            step=parsed[0],
            session=parsed[1],
            manifest=self.load(f"{path}/{MANIFEST}", CheckpointManifest, max_bytes=MAX_MANIFEST_BYTES),
            names=tuple(self.names_in(path)),
        )

    def is_folder(self, relative: str) -> bool:
        """Tell whether a folder (no link) lies there now."""
        return is_own_folder(self.run_dir / relative)

    @property
    def complete_checkpoints(self) -> dict[str, CheckpointFolder]:
        """The checkpoints whose manifest can be read."""
        return {
            path: found for path, found in self.checkpoints.items() if found.manifest.document is not None
        }

    def trainer_state(self, checkpoint: CheckpointFolder) -> Loaded[TrainerState]:
        """Return trainer.json of a checkpoint."""
        return self.load(f"{checkpoint.path}/{TRAINER_STATE}", TrainerState, max_bytes=MAX_MANIFEST_BYTES)

    @cached_property
    def evaluations(self) -> list[Loaded[Evaluation]]:
        """Every file in evaluations/ but temporary ones."""
        names = [name for name in self.names_in(EVALUATIONS) if not is_temporary_name(name)]
        return [self.load(f"{EVALUATIONS}/{name}", Evaluation) for name in names]

    def names_in(self, relative: str) -> list[str]:
        """Return the names in a folder of the run, sorted; none where it does not exist or is no folder."""
        folder = self.run_dir / relative
        if not is_own_folder(folder):
            return []
        try:
            return OS.list_directory(folder)
        except StorageError:
            if not is_own_folder(folder):  # it went since
                return []
            raise
