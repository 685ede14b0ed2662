"""Events on their way to the log: envelope and totals are filled in here and nowhere else."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from ledger.errors import UsageError
from ledger.history import History
from ledger.recorder.account import Account
from ledger.recorder.phases import PhaseClock
from ledger.records.events import Event
from ledger.records.parts import COUNTER_NAMES, LogPosition
from ledger.storage.clock import Clock
from ledger.storage.lock import RunLock
from ledger.storage.log import EventLog

__all__ = ["EventWriter"]


class EventWriter:
    """Appends the events of one session and tells the history of them."""

    def __init__(
        self,
        log: EventLog,
        *,
        lock: RunLock,
        history: History,
        session: int,
        account: Account,
        phases: PhaseClock,
        clock: Clock,
    ) -> None:
        self._log = log
        self._lock = lock
        self._history = history
        self._session = session
        self._account = account
        self._phases = phases
        self._clock = clock
        self._process = os.getpid()
        self._thread = threading.get_ident()

    @property
    def head(self) -> LogPosition:
        """The last line written."""
        head = self._log.head
        if head is None:
            raise UsageError("nothing was written yet", expected="a started session")
        return head

    def write(self, kind: type[Event], /, **fields: Any) -> LogPosition:
        """Append one event and return where it stands.

        Raises:
            StorageError: the line could not be written or synced; the log takes no further event.
        """
        self.require_own_process()
        head = self._log.head
        totals = {name: getattr(self._account, name) for name in COUNTER_NAMES}
        event = kind(
            seq=0 if head is None else head.seq + 1,
            session=self._session,
            time=self._clock.now(),
            elapsed=self._phases.elapsed,
            **totals,
            **fields,
        )
        position = self._log.append(event)
        self._history.add(event, chain=position.chain)
        return position

    def require_sole_writer(self) -> None:
        """Make sure that the lock which keeps other writers away is still the one that this writer holds.

        Raises:
            UnsafeError: the lock file was removed or replaced, so that a second writer could start.
            StorageError: the run folder was deleted, or the system refused.
        """
        self._lock.require_held()

    def locate_folder(self) -> Path:
        """Return where the run folder lies now, also after it was moved.

        Raises:
            StorageError: it was deleted.
        """
        return self._log.locate_folder()

    def require_own_process(self) -> None:
        """Refuse a process that was forked from the one which opened the log."""
        if os.getpid() != self._process:
            raise UsageError(
                "a forked process tried to write to the run", expected="only the process that opened it"
            )

    def require_own_thread(self) -> None:
        """Refuse another thread than the one that started the session: events are written by the loop's alone."""
        if threading.get_ident() != self._thread:
            raise UsageError(
                "another thread than the training loop's tried to write to the run",
                expected="its findings to be handed to the loop, which reports them between two microbatches",
            )

    def close(self) -> None:
        """Close the log."""
        self._log.close()

    def abandon(self) -> None:
        """Let go of the log without writing or syncing anything."""
        self._log.abandon()

    def sync(self) -> None:
        """Bring everything written so far to the disk."""
        self._log.sync()
