"""LG603: a run that was started under a recipe lock equals it, and the lock rests on passed pilots."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from ledger.audit.stream import Checker, Stream
from ledger.errors import LedgerError
from ledger.locks import lock_problems
from ledger.recipes import lock_differences
from ledger.records.events import Amendment, AnyEvent, SessionStart, UnknownEvent
from ledger.records.layout import LOG, RECIPE_LOCK
from ledger.records.locks import LockedPilot, RecipeLock
from ledger.storage.files import is_own_file
from ledger.storage.log_reader import read_log

__all__ = ["LockChecker", "pilot_problem"]


class LockChecker(Checker):
    """LG603: recipe, data and pilots of a locked run."""

    rules: ClassVar[tuple[str, ...]] = ("LG603",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._lock: RecipeLock | None = None
        self._is_locked = False
        self._compared: set[str] = set()

    def on_session_start(self, event: SessionStart) -> None:
        """Compare a session's recipe and data with the lock."""
        if event.run is not None and event.run.recipe_lock_sha256 is not None:
            self._is_locked = True
            self._lock = self._read(event.run.recipe_lock_sha256)
        if self._lock is None:
            return
        if event.data != self._lock.data:
            self._report(f"session {event.session} reads other data than the lock states")
        if event.recipe_sha256 in self._compared:
            return
        self._compared.add(event.recipe_sha256)
        recipe = self.stream.files.recipe(event.recipe_sha256).document
        if recipe is None:
            return  # LG601 says why
        for difference in lock_differences(self._lock, recipe):
            self._report(f"session {event.session} differs from the lock in {difference}")

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Under a lock nothing is amended."""
        if self._is_locked and isinstance(event, Amendment):
            self._report(
                f"{event.field} was amended in session {event.session}, yet the run is locked: a change is a new "
                "lock and a new run"
            )

    def _read(self, sha256: str) -> RecipeLock | None:
        loaded = self.stream.files.load(RECIPE_LOCK, RecipeLock)
        if loaded.sha256 != sha256:
            self.findings.skip("LG603", "the lock that the run names is not at hand")  # LG601 says why
            return None
        if loaded.document is None:
            self.findings.add("LG603", f"is no lock: {loaded.error}", where=RECIPE_LOCK)
        return loaded.document

    def _report(self, problem: str) -> None:
        self.findings.add("LG603", problem, where=self.stream.where)

    def finish(self) -> None:
        """Judge the lock itself, and the pilots that are at hand."""
        if not self._is_locked:
            self.findings.exempt("LG603", "the run was started without a recipe lock")
        lock = self._lock
        if lock is None:
            return
        problems = [problem.text for problem in lock_problems(lock)]
        for pilot in lock.pilots:
            if not is_own_file(Path(pilot.path) / LOG):
                self.findings.skip(
                    f"LG603 pilot {pilot.stage}",
                    f"its run {pilot.path} is not at hand: the lock is taken at its word",
                )
            elif (problem := pilot_problem(pilot)) is not None:
                problems.append(problem)
        for problem in problems:
            self.findings.add("LG603", problem, where=RECIPE_LOCK)


def pilot_problem(pilot: LockedPilot) -> str | None:
    """Return why the run of a pilot that is at hand is not the one that a lock names; None if it is."""
    try:
        with read_log(Path(pilot.path) / LOG) as reader:
            for line in reader:
                if isinstance(line.event, SessionStart):
                    if line.event.run_id != pilot.run_id:
                        return f"the pilot {pilot.stage} in {pilot.path} is run {line.event.run_id}, not {pilot.run_id}"
                    if line.event.identity_sha256 != pilot.identity_sha256:
                        return f"the pilot {pilot.stage} in {pilot.path} trained another recipe than the lock says"
                if line.event is not None and line.event.seq == pilot.log_head.seq:
                    if line.chain == pilot.log_head.chain:
                        return None
                    break
    except LedgerError as error:
        return f"the pilot {pilot.stage} cannot be read: {error}"
    return f"the log of the pilot {pilot.stage} in {pilot.path} is not the one that the lock rests on"
