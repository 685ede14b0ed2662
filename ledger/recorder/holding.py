"""A run folder held for writing: the writer's lock, and what the run's records say before a session starts."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from ledger.checkpoints import CompleteCheckpoint
from ledger.errors import EvidenceMissingError, InvalidDocumentError, UsageError, VerificationError
from ledger.recorder.opening import OpenedRun, acquire_lock, open_run, read_recipe
from ledger.records.documents import Evaluation, Recipe
from ledger.records.parts import FileRef, RunParent
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.documents import read_document
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.lock import RunLock
from ledger.storage.mounts import refuse_network_file_system

__all__ = ["HeldRun"]


class HeldRun:
    """What a run holds, for its only writer; `RunRecorder` adds the session."""

    def __init__(
        self,
        run_dir: Path | str,
        *,
        allow_network_fs: bool = False,
        clock: Clock | None = None,
        fs: FileSystem = OS,
    ) -> None:
        self.run_dir = Path(run_dir)
        self._allow_network_fs = allow_network_fs
        self._clock = clock or SystemClock()
        self._fs = fs
        self._lock: RunLock | None = None
        self._opened: OpenedRun | None = None

    def __enter__(self) -> Self:
        """Take the writer's lock and read the run's history.

        Raises:
            UsageError: the folder holds other things than a run, or a new run would lie where names that differ
                only by case are the same.
            UnsafeError: it lies on a network file system and nobody asked for that.
            LockedError: another writer holds the run.
            VerificationError, EvidenceMissingError: the log is damaged or incomplete; nothing was written.
        """
        refuse_network_file_system(self.run_dir, is_allowed=self._allow_network_fs)
        self._lock = acquire_lock(self.run_dir, clock=self._clock, fs=self._fs)
        try:
            self._opened = open_run(self.run_dir, fs=self._fs)
        except BaseException:
            self._lock.close()
            raise
        return self

    @property
    def has_sessions(self) -> bool:
        """Whether the run holds a session already."""
        return bool(self._run.history.sessions)

    @property
    def run_parent(self) -> RunParent | None:
        """The checkpoint of another run that this one branched from; None in a run of its own."""
        facts = self._run.history.facts
        return None if facts is None else facts.parent

    @property
    def target_in_force(self) -> int | None:
        """The target step in force; None in a run without sessions."""
        return self._run.history.target_step()

    def latest_checkpoint(self) -> CompleteCheckpoint | None:
        """Return the complete checkpoint furthest along the current branch, with or without an event.

        Raises:
            EvidenceMissingError: one lay further and vanished: going on from an older one is not done silently.
            VerificationError: its manifest is not the one that its event names.
        """
        return self._run.latest()

    def is_at_end(self, checkpoint: CompleteCheckpoint) -> bool:
        """Tell whether a checkpoint stands where the current branch ends, so that going on from it repeats nothing."""
        return self._run.is_at_end(checkpoint)

    def checkpoint_named(self, folder: Path | str) -> CompleteCheckpoint:
        """Return the complete checkpoint in `folder`, which may lie on a superseded branch.

        Raises:
            UsageError: it is not a complete checkpoint of this run.
        """
        wanted = Path(folder).resolve()
        for found in self._run.checkpoints:
            if found.folder.resolve() == wanted and found.path not in self._run.history.pruned:
                return found
        raise UsageError(
            "is not a complete checkpoint of this run", path=folder, expected=f"one in {self.run_dir}"
        )

    def recipe_of(self, checkpoint: CompleteCheckpoint | None) -> Recipe | None:
        """Return the recipe that `checkpoint` was made under; without one, the first session's (None: no session)."""
        if checkpoint is not None:
            return read_recipe(self.run_dir, checkpoint.manifest.recipe_sha256, fs=self._fs)
        sessions = self._run.history.sessions
        return read_recipe(self.run_dir, sessions[0].start.recipe_sha256, fs=self._fs) if sessions else None

    def recipe_in_force(self) -> Recipe | None:
        """Return the last session's recipe; None in a run without sessions."""
        sessions = self._run.history.sessions
        return read_recipe(self.run_dir, sessions[-1].start.recipe_sha256, fs=self._fs) if sessions else None

    @property
    def is_completed(self) -> bool:
        """Whether the last session ended `completed` or `closed` at the target in force."""
        sessions = self._run.history.sessions
        return bool(
            sessions
            and sessions[-1].end is not None
            and sessions[-1].end.status in ("completed", "closed")
            and sessions[-1].last.step == self.target_in_force
        )

    @property
    def last_checkpoint_seconds(self) -> float | None:
        """How long the loop was blocked by the run's last checkpoint, of whichever session; None before the first."""
        known = list(self._run.history.checkpoints())
        return known[-1].seconds if known else None

    def has_evaluated(self, step: int) -> bool:
        """Tell whether the current branch holds an evaluation of this step."""
        return any(found.step == step for found in self._run.history.evaluations())

    def has_final_evaluation(self, checkpoint: CompleteCheckpoint, *, split: str) -> bool:
        """Tell whether the log speaks of a complete evaluation of this checkpoint whose file is there as it says.

        A file that no event speaks of, because the process was killed before it could, is not counted.
        """
        named = [
            found.evaluation
            for found in self._run.history.evaluations()
            if found.complete and found.split == split and found.evaluation is not None
        ]
        return any(self._measures(file, checkpoint) for file in named)

    def _measures(self, file: FileRef, checkpoint: CompleteCheckpoint) -> bool:
        try:
            found = read_document(self.run_dir / file.path, Evaluation, sha256=file.sha256, fs=self._fs)
        except (EvidenceMissingError, VerificationError, InvalidDocumentError):
            return False  # measured again; what happened to the file is the audit's to say
        return found.manifest_sha256 == checkpoint.manifest_sha256

    @property
    def _run(self) -> OpenedRun:
        if self._opened is None:
            raise UsageError("the recorder is not open", expected="`with RunRecorder(folder) as recorder:`")
        return self._opened

    @property
    def _held(self) -> RunLock:
        if self._lock is None:
            raise UsageError("the recorder is not open", expected="`with RunRecorder(folder) as recorder:`")
        return self._lock
