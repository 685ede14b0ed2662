"""The account of a run: its sessions, what was spent and how sure that is, and the run's status."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ledger.audit.stream import Stream
from ledger.history import Session
from ledger.records.fields import Json
from ledger.records.parts import COUNTER_NAMES, subtract_counters
from ledger.storage.lock import LockState
from ledger.storage.processes import boot_id, hostname, is_process_alive

__all__ = ["account_of", "status_of"]

ENDED: Final = {"stopped": "ended early", "interrupted": "interrupted", "failed": "failed"}


def status_of(stream: Stream, lock: LockState, *, is_complete: bool) -> tuple[str, str]:
    """Return the run's status and the evidence for it, never a process's exit."""
    sessions = stream.history.sessions
    if stream.is_live:
        return (
            "running",
            f"the run's lock is held by {lock.holder or 'a process that does not say who it is'}",
        )
    if not sessions:
        return "unknown", "the log tells of no session"
    last = sessions[-1]
    if last.end is None:
        return _status_without_end(last, lock)
    if is_complete:
        return (
            "complete",
            f"the branch reached its target and session {last.number} ended {last.end.status!r}",
        )
    status = ENDED.get(last.end.status, "unknown")
    return status, f"session {last.number} ended {last.end.status!r}: {last.end.reason}"


def _status_without_end(last: Session, lock: LockState) -> tuple[str, str]:
    start = last.start
    if start.host != hostname():
        return (
            "unknown",
            f"session {last.number} has no end and ran on another host, {start.host}: liveness unknown",
        )
    if start.boot_id != boot_id():
        return "crashed", f"session {last.number} has no end, and {start.host} was started anew since"
    if lock.state == "free" or not is_process_alive(start.pid):
        return "crashed", f"session {last.number} has no end, and its process {start.pid} is gone"
    return (
        "unknown",
        f"session {last.number} has no end; a process {start.pid} lives, but there is no lock to tell whose",
    )


def account_of(stream: Stream) -> dict[str, Json]:
    """Return sessions, superseded work and the uncertainty of what was spent."""
    history = stream.history
    on_branch = {segment.session.number: segment.end for segment in history.branch()}
    branch, spent = history.branch_counters(), history.spent()
    return {
        "sessions": [
            _session_entry(session, on_branch.get(session.number), kept=history.kept_steps(session))
            for session in history.sessions
        ],
        "superseded": msgspec.to_builtins(subtract_counters(spent, branch)),
        "spent_at_most": _spent_at_most(stream),
        "unclean_sessions": [session.number for session in history.sessions if session.end is None],
        "elapsed_seconds": sum(session.latest.elapsed for session in history.sessions),
        "target_step": history.target_step(),
        "log_lines": stream.lines,
    }


def _session_entry(session: Session, end: Any, *, kept: list[int]) -> dict[str, Json]:
    work = session.work
    return {
        "session": session.number,
        "start": session.start.start,
        "started": session.start.time,
        "parent": None if session.start.parent is None else session.start.parent.checkpoint,
        "parent_session": session.parent_session,
        "status": "no end" if session.end is None else session.end.status,
        "first_step": session.first.step,
        "last_step": session.last.step,
        "on_branch_up_to_step": None if end is None else end.step,
        "kept_checkpoints": [*kept],
        "elapsed_seconds": session.latest.elapsed,
        "work": {name: getattr(work, name) for name in COUNTER_NAMES},
    }


def _spent_at_most(stream: Stream) -> dict[str, int | None]:
    """Return the bound on what was spent: a kill hides at most one logging interval of each unclean session."""
    spent = stream.history.spent()
    updates, tokens = 0, 0
    for session in stream.history.sessions:
        track = stream.track_of(session.number)
        logging = None if track is None or track.sections is None else track.sections.logging
        if session.end is not None:
            continue
        if track is None or logging is None:
            return {"step": None, "tokens_seen": None}
        updates += logging.interval
        tokens += logging.interval * track.tokens_per_update
    return {"step": spent.step + updates, "tokens_seen": spent.tokens_seen + tokens}
