"""LG108: run.json against the log."""

from __future__ import annotations

from typing import ClassVar

from ledger.audit.stream import Checker
from ledger.history import History
from ledger.records.documents import RunDocument, RunSession
from ledger.records.events import SessionStart
from ledger.records.layout import LOG, RUN

__all__ = ["RunDocumentChecker"]


class RunDocumentChecker(Checker):
    """LG108: run.json says what the log says, or what it said when fewer sessions had started."""

    rules: ClassVar[tuple[str, ...]] = ("LG108",)

    def on_session_start(self, event: SessionStart) -> None:
        """The run's facts stand in the first session, once."""
        if event.session > 1 and event.run is not None:
            self.findings.add(
                "LG108",
                f"session {event.session} states the run's facts again; they stand in session 1 alone",
                where=self.stream.where,
            )

    def finish(self) -> None:
        """Compare run.json with the one that the log yields."""
        loaded = self.stream.files.run
        derived = self.stream.history.run_document()
        if derived is None and self.stream.history.facts is not None:
            problem = "the log states a plan of more tokens than a record can hold (2^53 - 1)"
            self.findings.add("LG108", problem, where=f"{LOG} session 1")
            return
        if loaded.document is None:
            if not loaded.is_absent:
                self.findings.add("LG108", str(loaded.error), where=RUN)
            elif derived is not None:
                self._warn("is absent; it holds nothing that the log does not")
        elif derived is not None:
            self._compare(loaded.document, self.stream.history)
        elif not self.stream.findings.has("LG101"):
            self.findings.add("LG108", "names sessions, but the log tells of none", where=RUN)

    def _warn(self, problem: str) -> None:
        """Say that run.json is behind, unless a writer may be about to write it."""
        if not self.stream.is_live:
            self.findings.add(
                "LG108", f"{problem}; the next session writes it anew", where=RUN, severity="warning"
            )

    def _compare(self, found: RunDocument, history: History) -> None:
        listed, logged = [len(found.sessions), len(history.sessions)]
        numbers = [session.session for session in found.sessions]
        if numbers != list(range(1, listed + 1)):
            self.findings.add(
                "LG108", f"lists the sessions {_short(numbers)}, expected 1, 2, … in order", where=RUN
            )
            return
        then = history.before(listed + 1).run_document()
        if then is None:
            self.findings.add("LG108", "lists no session, but the log tells of some", where=RUN)
            return
        for session, expected in zip(found.sessions, then.sessions, strict=False):
            self._compare_session(session, expected)
        for session in found.sessions[len(then.sessions) :]:
            self.findings.add(
                "LG108", f"lists session {session.session}, which the log does not have", where=RUN
            )
        self._compare_run(found, then)
        if listed < logged:
            self._warn(f"is behind the log: it lists {listed} of {logged} sessions")

    def _compare_run(self, found: RunDocument, then: RunDocument) -> None:
        for name in RunDocument.model_fields:
            ours, theirs = getattr(found, name), getattr(then, name)
            if name != "sessions" and ours != theirs:
                self.findings.add(
                    "LG108", f"{name} is {_short(ours)}, but the log says {_short(theirs)}", where=RUN
                )

    def _compare_session(self, found: RunSession, expected: RunSession) -> None:
        """Compare an entry with its session_start; its place on the log is LG105's."""
        for name in ("session_id", "started", "parent", "recipe_sha256", "environment_sha256", "argv"):
            ours, theirs = getattr(found, name), getattr(expected, name)
            if ours != theirs:
                self.findings.add(
                    "LG108",
                    f"session {found.session}: {name} is {_short(ours)}, but the log says {_short(theirs)}",
                    where=RUN,
                )
        if found.log.seq != expected.log.seq:
            self.findings.add(
                "LG108",
                f"session {found.session} starts at seq {found.log.seq}, but on the log at seq "
                f"{expected.log.seq}",
                where=RUN,
            )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
