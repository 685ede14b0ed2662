from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    NewerVersionError,
    StorageError,
    UnsafeError,
    UsageError,
    VerificationError,
)
from ledger.records.events import encode_event
from ledger.records.parts import LogPosition
from ledger.storage.chain import chain_line, first_chain
from ledger.storage.log import EventLog, read_log
from tests.ledger.storage.building import (
    RUN_ID,
    CountingFileSystem,
    ToldClock,
    events,
    note,
    session_start,
    train,
    write_log,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_a_line_is_the_encoding_and_its_chain(path: Path):
    data = write_log(path, [session_start(), note(1)])
    first, second, rest = data.split(b"\n")
    before = hashlib.sha256(b"ledger-log-v1\n" + RUN_ID.encode()).hexdigest()
    body = encode_event(session_start())
    chain = hashlib.sha256(before.encode() + body[:-1]).hexdigest()
    assert first == body[:-1] + b',"chain":"' + chain.encode() + b'"}'
    assert second[-66:-2].decode() == hashlib.sha256(chain.encode() + second[:-76]).hexdigest()
    assert rest == b""


def test_append_returns_the_position_and_moves_the_head(path: Path):
    with EventLog.create(path, RUN_ID) as log:
        assert [log.head] == [None]
        position = log.append(session_start())
        assert position == log.head
        assert position == LogPosition(0, path.read_bytes()[-67:-3].decode())
        assert log.size == path.stat().st_size


def test_a_log_is_continued_where_it_ended(path: Path):
    whole = write_log(path, events(5))
    path.unlink()
    write_log(path, events(5)[:3])
    seen: list[int] = []
    with EventLog.open_for_append(path, visit=lambda line: seen.append(line.number)) as log:
        for event in events(5)[3:]:
            log.append(event)
    assert path.read_bytes() == whole
    assert seen == [1, 2, 3]


def test_an_empty_log_is_continued_when_the_run_is_named(path: Path):
    path.touch()
    with pytest.raises(EvidenceMissingError, match="the log is empty"):
        EventLog.open_for_append(path)
    with EventLog.open_for_append(path, RUN_ID) as log:
        log.append(session_start())
    assert read_log(path).identity


def test_a_log_is_not_created_over_another(path: Path):
    data = write_log(path, events(2))
    with pytest.raises(StorageError, match="EEXIST"):
        EventLog.create(path, RUN_ID)
    assert path.read_bytes() == data


def test_an_absent_log_is_missing_evidence(path: Path):
    with pytest.raises(EvidenceMissingError):
        EventLog.open_for_append(path, RUN_ID)
    with pytest.raises(EvidenceMissingError):
        read_log(path)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_regular_file_is_refused_without_waiting(path: Path, kind: str):
    match kind:
        case "link":
            write_log(path.with_name("real"), events(2))
            path.symlink_to("real")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    with pytest.raises(UnsafeError):
        read_log(path)
    with pytest.raises(UnsafeError):
        EventLog.open_for_append(path, RUN_ID)


def test_the_log_of_another_run_is_not_continued(path: Path):
    write_log(path, events(3))
    with pytest.raises(VerificationError, match=r"line 1 \(byte 0\).*chain"):
        EventLog.open_for_append(path, "another-run")


def test_a_torn_tail_must_be_quarantined_first(path: Path):
    data = write_log(path, events(3)) + b'{"event":"no'
    path.write_bytes(data)
    with pytest.raises(EvidenceMissingError, match="12 bytes that were never committed"):
        EventLog.open_for_append(path)
    assert path.read_bytes() == data


def test_a_damaged_log_is_not_continued(path: Path):
    data = bytearray(write_log(path, events(5)))
    data[data.index(b"a note")] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerificationError, match=r"line 4 \(byte [0-9,]+\): the log is damaged"):
        EventLog.open_for_append(path)


def test_a_gap_in_seq_under_a_valid_chain_is_damage(path: Path):
    first, chain = chain_line(first_chain(RUN_ID), encode_event(session_start()))
    second, _ = chain_line(chain, encode_event(note(2)))
    path.write_bytes(first + second)
    assert [line.problem for line in read_log(path)] == [None, None]
    with pytest.raises(VerificationError, match="its seq is 2 where 1 belongs"):
        EventLog.open_for_append(path)


def test_a_log_that_begins_without_a_session_start_is_damage(path: Path):
    path.write_bytes(chain_line(first_chain(RUN_ID), encode_event(note(0)))[0])
    for run_id in (None, RUN_ID):
        with pytest.raises(VerificationError, match="does not begin with a session_start"):
            EventLog.open_for_append(path, run_id)


def test_a_newer_log_is_told_from_a_damaged_one(path: Path):
    body = encode_event(session_start()).replace(b'"log_version":1', b'"log_version":2')
    path.write_bytes(chain_line(first_chain(RUN_ID), body)[0])
    with pytest.raises(NewerVersionError, match="log version 2"):
        EventLog.open_for_append(path)


class TestSync:
    """When bytes are forced onto the device."""

    def test_every_event_but_train_is_synced(self, path: Path):
        fs, clock = CountingFileSystem(), ToldClock()
        with EventLog.create(path, RUN_ID, clock=clock, fs=fs) as log:
            fs.operations.clear()
            log.append(session_start())
            assert fs.operations == ["stat", "write", "fdatasync"]
            fs.operations.clear()
            log.append(train(1))
            assert fs.operations == ["stat", "write"]
            log.append(note(2))
            assert fs.operations == ["stat", "write", "stat", "write", "fdatasync"]

    def test_train_is_synced_when_the_last_sync_is_a_second_old(self, path: Path):
        fs, clock = CountingFileSystem(), ToldClock()
        with EventLog.create(path, RUN_ID, clock=clock, fs=fs) as log:
            log.append(session_start())
            fs.operations.clear()
            clock.seconds += 0.75
            log.append(train(1))
            clock.seconds += 0.25
            log.append(train(2))
            log.append(train(3))
            assert fs.operations.count("fdatasync") == 1
            assert fs.operations[3] == "write"

    def test_closing_syncs_what_was_not(self, path: Path):
        fs, clock = CountingFileSystem(), ToldClock()
        with EventLog.create(path, RUN_ID, clock=clock, fs=fs) as log:
            log.append(session_start())
            log.append(train(1))
            fs.operations.clear()
        assert fs.operations == ["fdatasync", "close", "close"]


class TestRefusedEvents:
    """What is not written, and leaves the log usable."""

    def test_a_gap_in_seq(self, path: Path):
        with EventLog.create(path, RUN_ID) as log:
            log.append(session_start())
            with pytest.raises(UsageError, match="seq is 2; expected 1"):
                log.append(note(2))
            log.append(note(1))

    def test_another_beginning_than_a_session_start_of_the_run(self, path: Path):
        with EventLog.create(path, RUN_ID) as log:
            for event in (note(0), session_start(run_id="another")):
                with pytest.raises(UsageError, match="begins with a session_start of its run"):
                    log.append(event)
        assert path.read_bytes() == b""

    @pytest.mark.parametrize(
        "changes",
        [
            {"loss": float("nan")},
            {"loss": float("-inf")},
            {"loss": 2},
            {"loss": -0.0},
            {"clipped": -1},
            {"clipped": True},
            pytest.param({"loss": object()}, id="an object"),
            {"batches": ["0123456789ABCDEF"]},
        ],
        ids=repr,
    )
    def test_a_value_that_would_read_back_as_another(self, path: Path, changes: dict[str, object]):
        with EventLog.create(path, RUN_ID) as log:
            log.append(session_start())
            data = path.read_bytes()
            with pytest.raises(InvalidDocumentError, match="would not read back"):
                log.append(train(1, **changes))
            assert path.read_bytes() == data
            log.append(train(1))

    def test_a_line_beyond_the_bound(self, path: Path):
        with EventLog.create(path, RUN_ID) as log:
            log.append(session_start())
            data = path.read_bytes()
            with pytest.raises(InvalidDocumentError, match="at most 1,048,576 bytes a line"):
                log.append(train(1, batches=["0" * 16] * 60_000))
            assert path.read_bytes() == data

    def test_a_line_at_the_bound_is_written_and_read(self, path: Path):
        with EventLog.create(path, RUN_ID) as log:
            log.append(session_start())
            size = log.size
            log.append(train(1, batches=["0" * 16] * 55_000, diagnostics={"x" * 100: 1.0}))
            missing = (1 << 20) - (log.size - size)
        path.unlink()
        with EventLog.create(path, RUN_ID) as log:
            log.append(session_start())
            diagnostics = {"x" * (100 + missing): 1.0}
            log.append(train(1, batches=["0" * 16] * 55_000, diagnostics=diagnostics))
            assert log.size - size == 1 << 20
        assert [line.problem for line in read_log(path)] == [None, None]


class TestForeignHands:
    """Something else touches the file of a live writer: it stops at once and stays stopped."""

    @pytest.fixture
    def log(self, path: Path):
        with EventLog.create(path, RUN_ID) as log:
            log.append(session_start())
            yield log

    def require_poisoned(self, log: EventLog, path: Path, match: str) -> None:
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(StorageError, match=match):
            log.append(note(1))
        with pytest.raises(StorageError, match="an earlier failure ended this log's writing"):
            log.append(note(1))
        with pytest.raises(StorageError, match="an earlier failure"):
            log.sync()
        assert (path.read_bytes() if path.exists() else None) == before

    def test_replaced_by_a_copy(self, log: EventLog, path: Path):
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
        self.require_poisoned(log, path, "no longer the file that was opened")

    def test_truncated(self, log: EventLog, path: Path):
        os.truncate(path, 10)
        self.require_poisoned(log, path, "holds 10 bytes; expected")

    def test_appended_to(self, log: EventLog, path: Path):
        with path.open("ab") as file:
            file.write(b"x")
        self.require_poisoned(log, path, "as this writer left it")

    def test_removed(self, log: EventLog, path: Path):
        path.unlink()
        self.require_poisoned(log, path, "removed or renamed")

    def test_a_folder_that_is_moved_is_followed(self, tmp_path: Path):
        (tmp_path / "run").mkdir()
        path = tmp_path / "run" / "metrics.jsonl"
        with EventLog.create(path, RUN_ID) as log:
            log.append(session_start())
            (tmp_path / "run").rename(tmp_path / "moved")
            log.append(note(1))
        assert len(list(read_log(tmp_path / "moved" / "metrics.jsonl"))) == 2


def test_a_forked_child_cannot_write(path: Path):
    with EventLog.create(path, RUN_ID) as log:
        log.append(session_start())
        child = os.fork()
        if child == 0:
            try:
                log.append(note(1))
            except StorageError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        log.append(note(1))
    assert [line.problem for line in read_log(path)] == [None, None]


def test_a_closed_log_is_not_written(path: Path):
    log = EventLog.create(path, RUN_ID)
    log.close()
    log.close()
    with pytest.raises(UsageError, match="the log is closed"):
        log.append(session_start())
