"""The log, its lock, its quarantine and its repair against the plainest model there is: a list of events.

Whatever is written, ended, crashed with any tail, reopened, repaired or tried by a second writer, the list says what
must be read back, and a second list says which bytes must lie in quarantine.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from ledger.errors import EvidenceMissingError, LockedError
from ledger.history import History
from ledger.maintain import repair_run
from ledger.records.documents import RunDocument
from ledger.records.events import Event, SessionEnd, SessionStart, encode_event
from ledger.records.layout import LOCK, LOG, QUARANTINE, RUN
from ledger.records.parts import LogPosition, ModelSummary, RunFacts
from ledger.storage import lock as lock_module
from ledger.storage.atomic import replace_file
from ledger.storage.chain import chain_line, first_chain
from ledger.storage.documents import document_bytes, read_document
from ledger.storage.lock import RunLock, lock_state
from ledger.storage.log import EventLog, quarantine_tail, read_log
from tests.ledger.storage.building import RUN_ID, ToldClock, envelope, note, session_start, train
from tests.support.systems import QuickFileSystem
from tests.support.trees import snapshot

QUICK = QuickFileSystem()
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
FACTS = RunFacts(
    name="machine",
    purpose="smoke",
    parent=None,
    recipe_lock_sha256=None,
    model=ModelSummary(parameters={}),
    optimizer=[],
    target_step=9,
    planned_tokens=36,
)


def session_end(seq: int) -> SessionEnd:
    return SessionEnd(
        **envelope(seq),
        status="stopped",
        reason="the test says so",
        target_step=9,
        state=None,
        phases={},
        error=None,
    )


class StorageMachine(RuleBasedStateMachine):
    """A run folder, and beside it what an honest person would have noted down."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(lock_module, "_PATIENCE_SECONDS", 0.0)
        self.root = Path(tempfile.mkdtemp())
        self.run = self.root / "run"
        self.run.mkdir()
        self.log: EventLog | None = None
        self.lock: RunLock | None = None
        # The notes.
        self.events: list[Event] = []
        self.last: LogPosition | None = None
        self.tail = b""
        self.sessions = 0
        self.is_in_session = False
        self.is_live = False
        self.kept: list[bytes] = []
        self.run_documents: list[bytes] = []
        self.is_run_document_current = True
        self.temporaries = 0

    def teardown(self) -> None:
        if self.log is not None:
            self.log.abandon()
        if self.lock is not None:
            self.lock.abandon()
        self.patch.undo()
        shutil.rmtree(self.root)

    # A writer.

    @precondition(lambda self: not self.is_live)
    @rule()
    def open(self) -> None:
        self.lock = RunLock(self.run, fs=QUICK)
        path = self.run / LOG
        seen: list[Any] = []
        if self.tail:
            with pytest.raises(EvidenceMissingError):
                EventLog.open_for_append(path, RUN_ID, fs=QUICK)
            self._move_tail_aside(quarantine_tail(self.run, fs=QUICK))
        if path.exists():
            self.log = EventLog.open_for_append(
                path, RUN_ID, visit=lambda line: seen.append(line.event), clock=ToldClock(), fs=QUICK
            )
        else:
            self.log = EventLog.create(path, RUN_ID, clock=ToldClock(), fs=QUICK)
        assert seen == self.events
        assert self.log.head == self.last
        self.is_live = True

    @precondition(lambda self: self.is_live)
    @rule(kind=st.sampled_from(["note", "train", "end"]), text=TEXT, has_document=st.booleans())
    def append(self, kind: str, text: str, has_document: bool) -> None:
        event = self._next_event(kind, text)
        assert self.log is not None
        position = self.log.append(event)
        self.events.append(event)
        self.last = position
        if isinstance(event, SessionStart):
            self.sessions += 1
            self._note_session_start(has_document)
        self.is_in_session = not isinstance(event, SessionEnd)

    def _next_event(self, kind: str, text: str) -> Event:
        seq = len(self.events)
        if not self.is_in_session:
            start = session_start(seq, run=FACTS if self.sessions == 0 else None)
            return replace(start, session=self.sessions + 1)
        events: dict[str, Event] = {"note": note(seq, text), "train": train(seq), "end": session_end(seq)}
        return replace(events[kind], session=self.sessions)

    def _note_session_start(self, has_document: bool) -> None:
        """Write run.json as a recorder does, unless it is killed just before."""
        self.is_run_document_current = has_document
        if has_document:
            self.run_documents.append(self._derived())
            replace_file(self.run / RUN, self.run_documents[-1], fs=QUICK)

    def _derived(self) -> bytes:
        history = History()
        for line in read_log(self.run / LOG):
            assert line.event is not None
            assert line.position is not None
            history.add(line.event, chain=line.chain)
        document = history.run_document()
        assert document is not None
        return document_bytes(document)

    @precondition(lambda self: self.is_live)
    @rule()
    def close(self) -> None:
        assert self.log is not None
        assert self.lock is not None
        self.log.close()
        self.lock.close()
        self.log = self.lock = None
        self.is_live = self.is_in_session = False

    @precondition(lambda self: self.is_live)
    @rule(share=st.floats(0, 1), nulls=st.integers(0, 3), text=TEXT)
    def crash(self, share: float, nulls: int, text: str) -> None:
        """Die in the middle of a write: what reached the disk is some beginning of the next line, perhaps NULs."""
        assert self.log is not None
        assert self.lock is not None
        self.log.abandon()
        self.lock.abandon()
        self.log = self.lock = None
        before = first_chain(RUN_ID) if self.last is None else self.last.chain
        line, _ = chain_line(before, encode_event(self._next_event("note", text)))
        self.tail = line[: round(share * (len(line) - 1))] + b"\0" * nulls
        with (self.run / LOG).open("ab") as file:
            file.write(self.tail)
        self.is_live = self.is_in_session = False

    # Others.

    @rule()
    def try_a_second_writer(self) -> None:
        if self.is_live:
            with pytest.raises(LockedError):
                RunLock(self.run, fs=QUICK)
        else:
            RunLock(self.run, fs=QUICK).close()
        assert lock_state(self.run).state == ("held" if self.is_live else "free")

    @precondition(lambda self: not self.is_live and self.run_documents)
    @rule(which=st.integers(0, 3))
    def spoil_run_document(self, which: int) -> None:
        """Let run.json be lost, old or nonsense."""
        if which == 0:
            (self.run / RUN).unlink(missing_ok=True)
        else:
            content = b"nonsense" if which == 1 else self.run_documents[-which % len(self.run_documents)]
            (self.run / RUN).write_bytes(content)
        found = (self.run / RUN).read_bytes() if which else b""
        self.is_run_document_current = found == self._current()

    def _current(self) -> bytes | None:
        return self._derived() if self.sessions and not self.tail else None

    @precondition(lambda self: not self.is_live)
    @rule()
    def leave_a_temporary(self) -> None:
        self.temporaries += 1
        (self.run / f".run.json.tmp-{self.temporaries:016x}").write_bytes(b"half")

    # The repair.

    @precondition(lambda self: self.is_live)
    @rule()
    def repair_while_it_is_written(self) -> None:
        before = snapshot(self.run)
        assert repair_run(self.run, fs=QUICK).outcome == "live"
        with pytest.raises(LockedError):
            repair_run(self.run, apply=True, fs=QUICK)
        assert snapshot(self.run) == before

    @precondition(lambda self: not self.is_live and (self.run / LOCK).exists())
    @rule(apply=st.booleans())
    def repair(self, apply: bool) -> None:
        expected = self._expected_steps()
        before = snapshot(self.run)
        report = repair_run(self.run, apply=apply, fs=QUICK)
        assert [step.what for step in report.steps] == expected
        assert report.outcome == ("clean" if not expected else "repaired" if apply else "repairable")
        if not apply:
            assert snapshot(self.run) == before
            return
        if "torn tail" in expected:
            self._move_tail_aside(None)
        if "run.json" in expected and RUN in before:
            replaced = before[RUN].content
            assert isinstance(replaced, bytes)
            self.kept.append(replaced)
        self.is_run_document_current = True
        self.temporaries = 0
        self._check_run_document()
        assert repair_run(self.run, apply=True, fs=QUICK).outcome == "clean"

    def _expected_steps(self) -> list[str]:
        steps = {
            "torn tail": bool(self.tail),
            "run.json": bool(self.sessions) and not self.is_run_document_current,
            "temporaries": bool(list(self.run.glob(".*"))),
        }
        return [name for name, is_due in steps.items() if is_due]

    def _check_run_document(self) -> None:
        if not self.sessions:
            assert not (self.run / RUN).exists()
            return
        listed = [session.session_id for session in read_document(self.run / RUN, RunDocument).sessions]
        assert listed == [event.session_id for event in self.events if isinstance(event, SessionStart)]

    def _move_tail_aside(self, found: Any) -> None:
        if found is not None:
            assert (self.run / found.file).read_bytes() == self.tail
        self.kept.append(self.tail)
        self.tail = b""

    # What always holds.

    @invariant()
    def the_log_is_the_list(self) -> None:
        if not (self.run / LOG).exists():
            assert not self.events
            return
        reader = read_log(self.run / LOG)
        assert [(line.event, line.problem) for line in reader] == [(event, None) for event in self.events]
        assert (reader.tail.bytes if reader.tail else 0) == len(self.tail)

    @invariant()
    def nothing_that_was_cut_off_is_lost(self) -> None:
        kept = {path.read_bytes() for path in self.run.glob(f"{QUARANTINE}/[a-z]*")}
        assert kept == set(self.kept)


TestStorageMachine = StorageMachine.TestCase
TestStorageMachine.settings = settings(max_examples=50, stateful_step_count=25)
