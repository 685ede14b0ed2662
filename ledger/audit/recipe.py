"""LG601, LG602, LG604, LG605: recipes, environments and other files named by digest."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar, Final

from ledger.audit.files import Loaded
from ledger.audit.lineage import starts_from_beginning
from ledger.audit.stream import Checker, Stream
from ledger.errors import EvidenceMissingError, LedgerError
from ledger.history import Session
from ledger.recipes import TARGET_FIELD, LeafDifference, identity_sha256, recipe_differences
from ledger.records.documents import Environment, Recipe
from ledger.records.events import (
    Amendment,
    AnyEvent,
    SessionStart,
    TailRecovered,
    UnknownEvent,
    Validation,
)
from ledger.records.fields import Json
from ledger.records.layout import ENVIRONMENTS, PARENT_MANIFEST, PARENT_RECIPE, RECIPE_LOCK
from ledger.records.parts import RunParent
from ledger.storage.canonical import digest_of

__all__ = ["AmendmentChecker", "EnvironmentChecker", "NamedFileChecker", "environment_differences"]

ENVIRONMENT_PARTS: Final = ("packages", "python", "platform", "hardware", "settings")
CODE_STATE: Final = frozenset({"commit", "dirty", "diff_sha256"})
REPORTED_CHANGES: Final = 20


class NamedFileChecker(Checker):
    """LG601: every file named by digest exists with it; one identity in all sessions."""

    rules: ClassVar[tuple[str, ...]] = ("LG601",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._identity: str | None = None
        self._identities: dict[str, str | None] = {}
        """Digest of a recipe to the identity that follows from it; None where it cannot be read."""
        self._checked: set[str] = set()

    def on_session_start(self, event: SessionStart) -> None:
        """Check recipe, identity and environment of a session, and what the run itself names."""
        files = self.stream.files
        if self._is_new(event.recipe_sha256):
            self._check_document(files.recipe(event.recipe_sha256), event.recipe_sha256)
            if (problem := files.section_problem(event.recipe_sha256)) and files.recipe(
                event.recipe_sha256
            ).document:
                self.findings.add(
                    "LG601", f"a section is malformed: {problem}", where=f"recipes/{event.recipe_sha256}.json"
                )
        if self._is_new(event.environment_sha256):
            environment = files.environment(event.environment_sha256)
            self._check_document(environment, event.environment_sha256)
            self._check_code_difference(environment)
        self._check_identity(event)
        if event.run is not None and event.run.parent is not None:
            self._check_parent(event.run.parent)
        if event.run is not None and event.run.recipe_lock_sha256 is not None:
            self._check_file(RECIPE_LOCK, event.run.recipe_lock_sha256)

    def on_val(self, event: Validation) -> None:
        """Check the evaluation that an event names."""
        if event.evaluation is not None:
            self._check_file(event.evaluation.path, event.evaluation.sha256)

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Check a quarantined tail."""
        if isinstance(event, TailRecovered):
            self._check_file(event.file, event.sha256)

    def _check_parent(self, parent: RunParent) -> None:
        """Check the parent's manifest that a branch run keeps, and the recipe that this names."""
        self._check_file(PARENT_MANIFEST, parent.manifest_sha256)
        manifest = self.stream.files.parent_manifest
        if manifest.document is not None and manifest.sha256 == parent.manifest_sha256:
            self._check_file(PARENT_RECIPE, manifest.document.recipe_sha256)

    def _is_new(self, sha256: str) -> bool:
        is_new = sha256 not in self._checked
        self._checked.add(sha256)
        return is_new

    def _check_document(self, loaded: Loaded[Recipe] | Loaded[Environment], sha256: str) -> None:
        if loaded.sha256 is not None and loaded.sha256 != sha256:
            self.findings.add("LG601", f"its bytes have SHA-256 {loaded.sha256}", where=loaded.path)
        elif loaded.error is not None:
            self.findings.add("LG601", f"cannot be read: {loaded.error}", where=loaded.path)

    def _check_file(self, path: str, sha256: str) -> None:
        found = self.stream.files.digest(path)
        if isinstance(found, LedgerError):
            self.findings.add("LG601", f"is named by the log and cannot be read: {found}", where=path)
        elif found != sha256:
            self.findings.add(
                "LG601",
                "was changed: its bytes have another digest than the log names",
                where=path,
                evidence={"found": found, "expected": sha256},
            )

    def _check_code_difference(self, environment: Loaded[Environment]) -> None:
        code = {} if environment.document is None else environment.document.code
        sha256 = code.get("diff_sha256")
        if not isinstance(sha256, str):
            return
        path = f"{ENVIRONMENTS}/{sha256}.diff"
        if isinstance(self.stream.files.digest(path), EvidenceMissingError):
            self.findings.skip(
                "LG601 code", "the difference of the code to its commit was not kept, only its digest"
            )
        else:
            self._check_file(path, sha256)

    def _check_identity(self, event: SessionStart) -> None:
        first = self._identity = self._identity or event.identity_sha256
        if event.recipe_sha256 not in self._identities:
            recipe = self.stream.files.recipe(event.recipe_sha256).document
            self._identities[event.recipe_sha256] = None if recipe is None else identity_sha256(recipe)
        computed = self._identities[event.recipe_sha256]
        if computed is not None and computed != event.identity_sha256:
            self.findings.add(
                "LG601",
                f"session {event.session} states an identity that is not its recipe's",
                where=self.stream.where,
                evidence={"stated": event.identity_sha256, "computed": computed},
            )
        elif event.identity_sha256 != first:
            self.findings.add(
                "LG601",
                f"session {event.session} has another identity than session 1: it is another experiment",
                where=self.stream.where,
                evidence={"found": event.identity_sha256, "expected": first},
            )


class AmendmentChecker(Checker):
    """LG602: the differences to the parent's recipe are the session's amendments."""

    rules: ClassVar[tuple[str, ...]] = ("LG602",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._has_begun: set[int] = set()
        """Sessions with an event behind those that a start itself writes."""

    def on_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Note that a session got beyond its start."""
        if not isinstance(event, SessionStart | Amendment | TailRecovered):
            self._has_begun.add(event.session)

    def finish(self) -> None:
        """Compare each session with its parent."""
        history = self.stream.history
        run_parent = None if history.facts is None else history.facts.parent
        continues = run_parent is not None and run_parent.mode == "continue"
        for session in history.sessions:
            is_continued = continues and starts_from_beginning(self.stream, session.start)
            if session.number == history.sessions[0].number and not is_continued:
                self._refuse_amendments(session)
                continue
            before = self._inherited(session) if is_continued else self._before(session)
            after = self.stream.files.recipe(session.start.recipe_sha256).document
            if before is None or after is None:
                self.findings.skip("LG602", "a recipe cannot be read")
                continue
            differences = recipe_differences(before, after)
            where = f"session {session.number}"
            if is_continued:
                self._check_continued(differences, where)
            self._compare(differences, session.amendments, where, number=session.number)
        self._check_targets()

    def _refuse_amendments(self, session: Session) -> None:
        """What begins anew has nothing to amend."""
        for amendment in session.amendments:
            self.findings.add(
                "LG602",
                f"amends {amendment.field}, although it began with a recipe of its own",
                where=f"session {session.number}, seq {amendment.seq}",
            )

    def _check_targets(self) -> None:
        """Look for a target below the one that was in force; a start killed before its amendment sets none."""
        history = self.stream.history
        targets = history.target_steps()
        for before, session in pairwise(history.sessions):
            old, new = targets.get(before.number), targets.get(session.number)
            if session.number in self._has_begun and old is not None and new is not None and new < old:
                self.findings.add(
                    "LG602",
                    f"lowers the target from step {old} to {new}; a target may only be raised, so that no run is "
                    "declared done short of what was planned",
                    where=f"session {session.number}",
                    evidence={"before": old, "after": new},
                )

    def _inherited(self, session: Session) -> Recipe | None:
        """Return the recipe of another run's checkpoint that a branch run goes on from, where it is at hand."""
        parent = session.start.parent
        manifest = self.stream.files.parent_manifest
        if parent is None or manifest.document is None or manifest.sha256 != parent.manifest_sha256:
            return None
        recipe = self.stream.files.load(PARENT_RECIPE, Recipe)
        return recipe.document if recipe.sha256 == manifest.document.recipe_sha256 else None

    def _before(self, session: Session) -> Recipe | None:
        """Return the recipe of a session's parent in this run; from the run's beginning, that of the first session."""
        history, parent = self.stream.history, session.start.parent
        is_own = parent is not None and parent.run == history.run_id
        number = parent.session if parent is not None and is_own else history.sessions[0].number
        before = history.session(number) or session
        return self.stream.files.recipe(before.start.recipe_sha256).document

    def _check_continued(self, differences: list[LeafDifference], where: str) -> None:
        for found in differences:
            if found.leaf_class == "identity" and not found.is_of_schedule:
                self.findings.add(
                    "LG602",
                    f"continues another run, but differs from it in {found}, which is not of the schedule",
                    where=where,
                )

    def _compare(
        self, differences: list[LeafDifference], amendments: list[Amendment], where: str, *, number: int
    ) -> None:
        stated = {
            amendment.field: digest_of([amendment.from_, amendment.to, amendment.class_])
            for amendment in amendments
        }
        actual = {
            found.field: digest_of([found.before, found.after, found.leaf_class]) for found in differences
        }
        for found in differences:
            must_be_stated = found.leaf_class == "identity" or found.field == TARGET_FIELD
            if must_be_stated and found.field not in stated and number in self._has_begun:
                self.findings.add(
                    "LG602", f"differs from its parent in {found}, which no amendment states", where=where
                )
        for amendment in amendments:
            if stated[amendment.field] != actual.get(amendment.field):
                self.findings.add(
                    "LG602",
                    f"an amendment says that {amendment.field} changed from {amendment.from_!r} to "
                    f"{amendment.to!r}, which is not what the two recipes say",
                    where=f"{where}, seq {amendment.seq}",
                )


class EnvironmentChecker(Checker):
    """LG604, LG605: code state and environment, and how they change between sessions."""

    rules: ClassVar[tuple[str, ...]] = ("LG604", "LG605")

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._previous: SessionStart | None = None

    def on_session_start(self, event: SessionStart) -> None:
        """Look for the code state, and compare with the session before."""
        previous, self._previous = self._previous, event
        after = self.stream.files.environment(event.environment_sha256).document
        if after is None:
            return  # LG601 says why
        if not after.code.keys() >= CODE_STATE:
            self.findings.skip("LG604", f"the environment of session {event.session} does not state the code")
        if previous is None or previous.environment_sha256 == event.environment_sha256:
            return
        before = self.stream.files.environment(previous.environment_sha256).document
        if before is not None:
            code = [f"{name}: {old} -> {new}" for name, old, new in _changes(before.code, after.code)]
            self._report("LG604", "other code", code, previous, event)
            self._report(
                "LG605", "another environment", environment_differences(before, after), previous, event
            )

    def _report(
        self, rule: str, what: str, changes: list[str], previous: SessionStart, event: SessionStart
    ) -> None:
        if changes:
            self.findings.add(
                rule,
                f"session {event.session} ran {'with' if rule == 'LG604' else 'in'} {what} than session "
                f"{previous.session}: {'; '.join(changes[:REPORTED_CHANGES])}",
                where=self.stream.where,
                evidence={"changes": len(changes)},
            )


def environment_differences(before: Environment, after: Environment) -> list[str]:
    """Return what differs between two environments, the code state apart, one entry a line."""
    changed = []
    for part in ENVIRONMENT_PARTS:
        old, new = getattr(before, part), getattr(after, part)
        if not isinstance(old, dict):
            old, new = {part: old}, {part: new}
        changed += [f"{name}: {was!r} -> {now!r}" for name, was, now in _changes(old, new)]
    return changed


def _changes(old: Mapping[str, Json], new: Mapping[str, Json]) -> list[tuple[str, Json, Json]]:
    """Return (name, before, after) of whatever differs."""
    names = sorted(old.keys() | new.keys())
    return [(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
