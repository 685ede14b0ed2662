"""What file systems and hosts do to a run under way or at rest: attributes, permissions, moves, copies, clocks."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.audit import reconcile
from ledger.errors import LedgerError, StorageError
from ledger.maintain import repair_run
from ledger.recorder import RunRecorder
from ledger.records.layout import LOG
from ledger.storage.atomic import create_file, replace_file, temporary_path
from ledger.storage.filesystem import OS, DurabilityWarning, FileSystem
from ledger.storage.log import read_log
from tests.ledger.storage.building import events as some_events
from tests.ledger.storage.building import note, write_log
from tests.support.audited import assert_honest
from tests.support.faults import Snapshot, diverted
from tests.support.faults_checks import check_passed
from tests.support.faults_scenarios import finish_run, interrupted_run
from tests.support.faults_server import Server
from tests.support.faults_session import SETTINGS, session
from tests.support.toy import ToyLoop, attempt, begin, run_toy, save, train


@contextmanager
def attribute(path: Path, letter: str) -> Iterator[None]:
    """Give a file or folder an attribute of ext file systems for a while; skips where there is none."""
    program = shutil.which("chattr")
    if (
        program is None
        or subprocess.run([program, f"+{letter}", str(path)], capture_output=True, check=False).returncode
    ):
        pytest.skip("this file system or user sets no attributes")
    try:
        yield
    finally:
        subprocess.run([program, f"-{letter}", str(path)], check=True)


class FailingAlways(FileSystem):
    """Refuses one kind of operation with one error, on names that are given."""

    def __init__(self, operation: str, number: int, *, name: str = "") -> None:
        self._refused = (operation, number, name)

    def perform(self, operation, path, function, *arguments, **options):
        refused, number, name = self._refused
        if operation == refused and name in Path(path).name:
            raise OSError(number, os.strerror(number))
        return super().perform(operation, path, function, *arguments, **options)


def test_an_immutable_folder_takes_no_session_and_loses_nothing(tmp_path):
    interrupted_run(tmp_path)
    before = Snapshot.of(tmp_path / "run")
    before.pop("run.lock")
    with attribute(tmp_path / "run", "i"), pytest.raises(StorageError) as refused:
        finish_run(tmp_path)
    assert refused.value.exit_code == 4
    after = Snapshot.of(tmp_path / "run")
    assert {path: after[path] for path in before} == before
    finish_run(tmp_path)
    assert not check_passed(tmp_path / "run")


def test_a_log_that_may_only_grow_is_appended_to(tmp_path):
    session(tmp_path / "run", OS, attempt)
    with attribute(tmp_path / "run" / LOG, "a"):
        finish_run(tmp_path)
    assert not check_passed(tmp_path / "run")


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EACCES])
def test_a_refused_rename_keeps_the_old_file_and_leaves_nothing_behind(number, tmp_path):
    replace_file(tmp_path / "run.json", b"old")
    with pytest.raises(StorageError):
        replace_file(tmp_path / "run.json", b"new", fs=FailingAlways("rename", number))
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert (tmp_path / "run.json").read_bytes() == b"old"


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_folders_that_cannot_be_synced_are_a_warning_and_no_error(number, tmp_path, monkeypatch):
    monkeypatch.setattr("ledger.storage.filesystem._unprovable_devices", set())
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        finish_run(tmp_path, FailingAlways("fsync of the folder", number))
    assert [type(warning.message) for warning in heard] == [DurabilityWarning]
    assert not check_passed(tmp_path / "run")


def test_a_folder_whose_sync_fails_is_an_error(tmp_path):
    with pytest.raises(StorageError):
        finish_run(tmp_path, FailingAlways("fsync of the folder", errno.EIO))


def train_with(place: Path, deed: Callable[[RunRecorder], object]) -> None:
    """Train, do something to the run behind the first step, and train on."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        deed(recorder)
        attempt(recorder, loop)
        save(recorder, loop, "interval")

    session(place / "run", OS, body)


def test_a_run_that_is_moved_meanwhile_goes_on_where_it_lies_now(tmp_path):
    train_with(tmp_path, lambda _: (tmp_path / "run").rename(tmp_path / "moved"))
    assert not (tmp_path / "run").exists()
    assert_honest(tmp_path / "moved")
    assert (tmp_path / "moved" / "checkpoints" / "step-00000002-s01").is_dir()
    (tmp_path / "moved").rename(tmp_path / "run")
    finish_run(tmp_path)
    assert not check_passed(tmp_path / "run")


def test_a_run_that_is_deleted_meanwhile_is_an_error_at_the_next_event(tmp_path):
    with pytest.raises(StorageError) as refused:
        train_with(tmp_path, lambda _: shutil.rmtree(tmp_path / "run"))
    assert refused.value.exit_code == 4
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("deed", ["saved by an editor", "truncated", "appended to"])
def test_a_log_that_something_else_changes_is_written_no_further(deed, tmp_path):
    log = tmp_path / "run" / LOG

    def change(_recorder: RunRecorder) -> None:
        data = log.read_bytes()
        if deed == "saved by an editor":
            log.with_name("copy").write_bytes(data)
            log.with_name("copy").rename(log)
        elif deed == "truncated":
            os.truncate(log, len(data) - 10)
        else:
            log.write_bytes(data + b"x")
        changed.append(log.read_bytes())

    changed: list[bytes] = []
    with pytest.raises(StorageError):
        train_with(tmp_path, change)
    assert log.read_bytes() == changed[0]


class Tampering(FileSystem):
    """Does something to the log between two reads of it."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self._deed = deed
        self._reads = 0

    def perform(self, operation, path, function, *arguments, **options):
        if operation in ("read", "readv") and Path(path).name == LOG:
            self._reads += 1
            if self._reads == 2:
                self._deed()
        return super().perform(operation, path, function, *arguments, **options)


def long_log(path: Path) -> bytes:
    """Write a log that takes several reads."""
    first = some_events(1)
    return write_log(path, [*first, *(note(seq, "x" * 60_000) for seq in range(1, 40))])


def test_a_log_that_is_truncated_while_it_is_read_is_an_error(tmp_path):
    long_log(tmp_path / LOG)
    with pytest.raises(StorageError, match="shorter"):
        list(read_log(tmp_path / LOG, fs=Tampering(lambda: os.truncate(tmp_path / LOG, 5))))


def test_a_log_that_is_replaced_while_it_is_read_is_read_as_it_was(tmp_path):
    long_log(tmp_path / LOG)
    (tmp_path / "other").write_bytes(b"other")
    fs = Tampering(lambda: (tmp_path / "other").rename(tmp_path / LOG))
    assert [line.problem for line in read_log(tmp_path / LOG, fs=fs)] == [None] * 40


def test_a_log_that_grows_while_it_is_read_is_judged_as_far_as_it_reached(tmp_path):
    data = long_log(tmp_path / LOG)

    def grow() -> None:
        with (tmp_path / LOG).open("ab") as log:
            log.write(b'{"event":"note","se')

    reader = read_log(tmp_path / LOG, fs=Tampering(grow))
    assert len(list(reader)) == 40
    assert (reader.size, reader.tail) == (len(data), None)


def test_an_audit_of_a_log_that_is_truncated_meanwhile_is_an_error(tmp_path):
    finish_run(tmp_path)
    log = tmp_path / "run" / LOG
    size = log.stat().st_size

    class Cut(FileSystem):
        def perform(self, operation, path, function, *arguments, **options):
            if operation in ("read", "readv") and Path(path).name == LOG and log.stat().st_size == size:
                os.truncate(log, size // 2)
                return function(arguments[0], *arguments[1:], **options)
            return super().perform(operation, path, function, *arguments, **options)

    with diverted(Cut()), pytest.raises(LedgerError, match="shorter") as refused:
        reconcile(tmp_path / "run")
    assert refused.value.exit_code == 4


class JumpingClock:
    """Tells a wall clock that jumps; the monotonic one, which order may rest on, goes on."""

    def __init__(self, *jumps: str) -> None:
        self._times = list(jumps)
        self._seconds = 0.0

    def now(self) -> str:
        self._times.append(self._times.pop(0))
        return self._times[-1]

    def monotonic(self) -> float:
        self._seconds += 0.125
        return self._seconds


@pytest.mark.parametrize(
    "times",
    [
        ("2026-01-01T00:00:00.000000Z", "2025-01-01T00:00:00.000000Z"),
        ("2026-01-01T00:00:00.000000Z", "2027-01-01T00:00:00.000000Z", "1970-01-01T00:00:00.000000Z"),
        ("1970-01-01T00:00:00.000000Z",),
    ],
    ids=["backwards", "to and fro", "1970"],
)
def test_a_wall_clock_that_jumps_decides_nothing(times, tmp_path):
    run_toy(tmp_path / "control", SETTINGS)
    with RunRecorder(tmp_path / "run", clock=JumpingClock(*times)) as recorder:
        loop = ToyLoop(SETTINGS)
        begin(recorder, loop)
        for _ in range(2):
            attempt(recorder, loop)
        save(recorder, loop, "interval")
    with RunRecorder(tmp_path / "run", clock=JumpingClock(*reversed(times))) as recorder:
        loop = ToyLoop(SETTINGS)
        begin(recorder, loop, start="auto")
        assert recorder.step == 2
        train(recorder, loop)
    assert not check_passed(tmp_path / "run")


def test_a_suspended_machine_only_costs_time(tmp_path):
    class Suspended(JumpingClock):
        def monotonic(self) -> float:
            self._seconds += 86_400.0 if 2.0 < self._seconds < 3.0 else 0.125
            return self._seconds

    with RunRecorder(tmp_path / "run", clock=Suspended("2026-01-01T00:00:00.000000Z")) as recorder:
        loop = ToyLoop(SETTINGS)
        begin(recorder, loop)
        train(recorder, loop)
    assert not check_passed(tmp_path / "run")


def test_a_thousand_crashes_leave_what_only_a_repair_removes(tmp_path):
    interrupted_run(tmp_path)
    run = tmp_path / "run"
    for _ in range(1_000):
        temporary_path(run / "run.json").write_bytes(b"half")
    foreign = [run / ".run.json.tmp", run / "checkpoints" / "copy.tmp-0123456789abcdef"]
    for path in foreign:
        path.write_bytes(b"theirs")
    report = repair_run(run)
    assert (report.temporary_count, len(report.temporaries)) == (1_000, 20)
    assert len(list(run.glob(".run.json.tmp-*"))) == 1_000
    assert len(reconcile(run).findings) < 200
    repair_run(run, apply=True)
    assert not list(run.glob(".run.json.tmp-*"))
    assert all(path.read_bytes() == b"theirs" for path in foreign)


@pytest.mark.slow
def test_what_is_forbidden_to_a_user_is_an_error_and_loses_nothing():
    if os.geteuid() != 0:
        pytest.skip("takes root to become somebody else")
    with tempfile.TemporaryDirectory() as name, Server() as server:
        place = Path(name)
        interrupted_run(place)
        place.chmod(0o755)
        before = Snapshot.of(place / "run")
        code = server.run("tests.support.faults_child:unprivileged_toy", place=str(place))
        assert code == 4
        assert Snapshot.of(place / "run") == before


def test_an_existing_file_of_other_content_is_never_replaced(tmp_path):
    create_file(tmp_path / "recipe.json", b"one")
    with pytest.raises(LedgerError):
        create_file(tmp_path / "recipe.json", b"two")
    assert (tmp_path / "recipe.json").read_bytes() == b"one"
