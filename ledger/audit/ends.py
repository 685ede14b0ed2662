"""LG106, LG701: what a session's end says of itself, against the target in force and the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ledger.audit.stream import Checker
from ledger.history import Session
from ledger.records.events import SessionEnd
from ledger.records.layout import LOG

__all__ = ["EndChecker"]


class EndChecker(Checker):
    """Every session's end, the last one's claim to completion apart (see `CompletionChecker`)."""

    rules: ClassVar[tuple[str, ...]] = ("LG106", "LG701")

    def finish(self) -> None:
        """Look at each end with the target that was in force then."""
        targets = self.stream.history.target_steps()
        for session in self.stream.history.sessions:
            if session.end is None:
                continue
            target = targets.get(session.number)
            problems = [("LG106", problem) for problem in self._form_problems(session, session.end)]
            if target is not None:
                problems += [("LG701", problem) for problem in _target_problems(session, session.end, target)]
                problems += [("LG701", problem) for problem in self._claim_problems(session, target)]
            for rule, problem in problems:
                self.findings.add(
                    rule, f"session {session.number} {problem}", where=f"{LOG} seq {session.end.seq}"
                )

    def _form_problems(self, session: Session, end: SessionEnd) -> Iterator[str]:
        if end.error is not None and end.status in {"completed", "closed"}:
            yield f"ended {end.status!r}, but with an error: {end.error}"
        track = self.stream.track_of(session.number)
        if track is None or track.sections is None:
            return
        policy = track.sections.checkpoint
        keeps_none = policy is not None and policy.policy == "none"
        if end.state is not None and not keeps_none:
            yield "states the digests of a final state, although its recipe keeps checkpoints"
        elif end.state is None and keeps_none:
            yield "states no digests of its final state, although its recipe keeps no checkpoint"

    def _claim_problems(self, session: Session, target: int) -> Iterator[str]:
        """Judge an earlier session's claim; the last one's is judged with the run's."""
        is_last = session is self.stream.history.sessions[-1]
        if session.end is None or session.end.status not in {"completed", "closed"} or is_last:
            return
        if session.last.step < target:
            yield f"ended {session.end.status!r} at step {session.last.step} of {target}"


def _target_problems(session: Session, end: SessionEnd, target: int) -> Iterator[str]:
    if end.target_step != target:
        yield f"ended with the target {end.target_step}, but the target in force was {target}"
    elif end.status == "closed" and session.first.step < target <= session.last.step:
        yield f"ended 'closed', but its parent stands at step {session.first.step}, not at the target {target}"
