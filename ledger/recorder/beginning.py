"""The first writes of a session, in the order that keeps every crash between them harmless.

Recipe and environment first (files nobody names yet), then the torn tail to quarantine, then `session_start`,
synced, then what belongs to it, and run.json last: it never knows of a session that the log does not hold.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path

from ledger.errors import UsageError
from ledger.history import History
from ledger.recipes import identity_sha256
from ledger.recorder.account import Account
from ledger.recorder.active import ActiveSession
from ledger.recorder.branching import store_parent
from ledger.recorder.opening import OpenedRun
from ledger.recorder.phases import PhaseClock
from ledger.recorder.plan import LiveState, SessionDigests, SessionPlan
from ledger.recorder.starting import Beginning, prepare_beginning
from ledger.recorder.writer import EventWriter
from ledger.records.events import LOG_VERSION, Amendment, SessionStart, TailRecovered
from ledger.records.layout import ENVIRONMENTS, LOG, RECIPE_LOCK, RECIPES, RUN, SEAL
from ledger.records.parts import NOTHING_SUPERSEDED
from ledger.storage.atomic import replace_file
from ledger.storage.clock import Clock
from ledger.storage.documents import document_bytes, store_by_digest
from ledger.storage.filesystem import FileSystem
from ledger.storage.lock import RunLock
from ledger.storage.log import EventLog, QuarantinedTail, list_quarantined, quarantine_tail
from ledger.storage.processes import boot_id, hostname

__all__ = ["begin_session"]


def begin_session(
    opened: OpenedRun,
    plan: SessionPlan,
    *,
    lock: RunLock,
    capture: Callable[[], LiveState],
    phases: PhaseClock,
    clock: Clock,
    fs: FileSystem,
) -> ActiveSession:
    """Check the plan, write the session's first events and run.json, and return the session.

    Raises:
        UsageError, RefusedError, VerificationError: as `starting.prepare_beginning`; nothing was written.
        UnsafeError: the lock file was removed or replaced since the lock was taken; the log was not touched.
        StorageError: the system refused.
    """
    if fs.exists(opened.folder / SEAL):
        raise UsageError(
            "is sealed: it was declared done", path=opened.folder, advice="extend it in a new run"
        )
    beginning = prepare_beginning(opened, plan, capture(), fs=fs)
    digests = _store_descriptions(opened.folder, plan, fs=fs)
    if plan.recipe_lock is not None and not opened.history.sessions:
        replace_file(opened.folder / RECIPE_LOCK, document_bytes(plan.recipe_lock), fs=fs)
    if plan.mode is not None and plan.parent is not None and not opened.history.sessions:
        store_parent(opened.folder, plan.parent, fs=fs)
    lock.require_held()
    run_id = opened.history.run_id or uuid.uuid4().hex
    account = _account(beginning)
    writer = EventWriter(
        _open_log(opened, run_id, clock=clock, fs=fs),
        lock=lock,
        history=opened.history,
        session=beginning.session,
        account=account,
        phases=phases,
        clock=clock,
    )
    session = ActiveSession(
        run_id=run_id,
        plan=plan,
        beginning=beginning,
        account=account,
        writer=writer,
        phases=phases,
        capture=capture,
        digests=digests,
        fs=fs,
    )
    _write_first_events(session, opened, beginning, fs=fs)
    phases.switch("train")
    return session


def _store_descriptions(folder: Path, plan: SessionPlan, *, fs: FileSystem) -> SessionDigests:
    """Store recipe and environment, which no event names yet."""
    return SessionDigests(
        recipe_sha256=store_by_digest(folder / RECIPES, plan.recipe, fs=fs),
        identity_sha256=identity_sha256(plan.recipe),
        environment_sha256=store_by_digest(folder / ENVIRONMENTS, plan.environment, fs=fs),
    )


def _account(beginning: Beginning) -> Account:
    return Account(
        start=beginning.counters,
        cursor=beginning.cursor,
        data_chain=beginning.data_chain,
        consecutive_skips=beginning.consecutive_skips,
        accumulation=beginning.accumulation,
    )


def _write_first_events(
    session: ActiveSession, opened: OpenedRun, beginning: Beginning, *, fs: FileSystem
) -> None:
    try:
        _write_session_start(session, opened.history, beginning)
        _write_what_belongs_to_it(session, opened, beginning, fs=fs)
    except BaseException:
        session.close()
        raise


def _open_log(opened: OpenedRun, run_id: str, *, clock: Clock, fs: FileSystem) -> EventLog:
    path = opened.folder / LOG
    if opened.tail is not None:
        quarantine_tail(opened.folder, fs=fs)
    if opened.head is None and not fs.exists(path):
        return EventLog.create(path, run_id, clock=clock, fs=fs)
    return EventLog.open_for_append(path, run_id, clock=clock, fs=fs)


def _write_session_start(session: ActiveSession, history: History, beginning: Beginning) -> None:
    plan = session.plan
    previous = history.sessions[-1] if history.sessions else None
    lost = history.superseded_by(beginning.parent, beginning.counters) if previous else NOTHING_SUPERSEDED
    session.writer.write(
        SessionStart,
        log_version=LOG_VERSION,
        run_id=session.run_id,
        session_id=uuid.uuid4().hex,
        argv=list(plan.argv),
        run=beginning.facts,
        recipe_sha256=session.digests.recipe_sha256,
        identity_sha256=session.digests.identity_sha256,
        environment_sha256=session.digests.environment_sha256,
        data=plan.data,
        data_parallel=plan.data_parallel,
        tokens_per_microbatch=plan.tokens_per_microbatch,
        accumulation=beginning.accumulation,
        host=hostname(),
        pid=os.getpid(),
        boot_id=boot_id(),
        start=plan.start,
        parent=beginning.parent,
        superseded=lost,
        previous_session="none" if previous is None else "ended" if previous.end else "unclean",
        cursor=beginning.cursor,
        data_chain=beginning.data_chain,
        state=beginning.state,
    )


def _write_what_belongs_to_it(
    session: ActiveSession, opened: OpenedRun, beginning: Beginning, *, fs: FileSystem
) -> None:
    for tail in _unnamed_tails(opened, fs=fs):
        session.writer.write(TailRecovered, **tail._asdict())
    for difference in beginning.amendments:
        session.writer.write(
            Amendment,
            field=difference.field,
            from_=difference.before,
            to=difference.after,
            class_=difference.leaf_class,
            reason=session.plan.amendment_reason,
        )
    document = opened.history.run_document()
    if document is not None:
        replace_file(opened.folder / RUN, document_bytes(document), fs=fs)


def _unnamed_tails(opened: OpenedRun, *, fs: FileSystem) -> list[QuarantinedTail]:
    """Return the quarantined tails that no event names yet."""
    named = {file for known in opened.history.sessions for file in known.quarantined}
    return [tail for tail in list_quarantined(opened.folder, fs=fs) if tail.file not in named]
