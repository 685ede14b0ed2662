from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import LockedError, UnsafeError
from ledger.storage import lock as lock_module
from ledger.storage.filesystem import FileSystem
from ledger.storage.lock import RunLock, lock_state
from ledger.storage.processes import boot_id, hostname

HOLDER = """
import sys
from ledger.storage.filesystem import FileSystem
from ledger.storage.lock import RunLock
lock = RunLock(sys.argv[1])
print("held", flush=True)
input()
"""


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lock_module, "_PATIENCE_SECONDS", 0.05)


def test_the_content_says_who_holds_it(tmp_path: Path):
    with RunLock(tmp_path) as lock:
        state = lock_state(tmp_path)
    assert state.state == "held"
    assert state.holder == lock.holder
    assert (lock.holder.pid, lock.holder.host, lock.holder.boot_id) == (os.getpid(), hostname(), boot_id())


def test_a_second_writer_is_refused_with_the_holder_s_name(tmp_path: Path):
    with RunLock(tmp_path) as lock, pytest.raises(LockedError) as caught:
        RunLock(tmp_path)
    assert f"another writer holds this run: process {os.getpid()} on {hostname()}" in str(caught.value)
    assert str(lock.holder.started) in str(caught.value)
    assert caught.value.exit_code == 5


def test_it_is_free_after_its_end_and_the_file_stays(tmp_path: Path):
    with RunLock(tmp_path) as lock:
        pass
    state = lock_state(tmp_path)
    assert (state.state, state.holder) == ("free", lock.holder)
    with RunLock(tmp_path):
        pass


def test_a_killed_holder_leaves_it_free(tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        state = lock_state(tmp_path)
        with pytest.raises(LockedError, match=f"process {holder.pid} "):
            RunLock(tmp_path)
        holder.kill()
        holder.wait()
    assert state.state == "held"
    assert lock_state(tmp_path).state == "free"
    RunLock(tmp_path).close()


def test_without_a_lock_file_nothing_is_known_and_nothing_is_written(tmp_path: Path):
    assert lock_state(tmp_path) == ("unknown", None)
    assert list(tmp_path.iterdir()) == []


def test_asking_writes_nothing(tmp_path: Path):
    RunLock(tmp_path).close()
    before = (tmp_path / "run.lock").stat()
    lock_state(tmp_path)
    assert (tmp_path / "run.lock").stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 100, b"[]", b'{"pid":1}', b"x" * 10_000])
def test_unreadable_content_names_nobody(tmp_path: Path, content: bytes):
    (tmp_path / "run.lock").write_bytes(content)
    assert lock_state(tmp_path) == ("free", None)


def test_a_reader_s_probe_only_delays_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    RunLock(tmp_path).close()
    reader = os.open(tmp_path / "run.lock", os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_SH)
    monkeypatch.setattr(time, "sleep", lambda _: os.close(reader) if _is_open(reader) else None)
    RunLock(tmp_path).close()


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_lock_that_is_no_regular_file_is_refused(tmp_path: Path, kind: str):
    path = tmp_path / "run.lock"
    match kind:
        case "link":
            (tmp_path / "elsewhere").touch()
            path.symlink_to("elsewhere")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    with pytest.raises(UnsafeError):
        RunLock(tmp_path)
    with pytest.raises(UnsafeError):
        lock_state(tmp_path)


@pytest.mark.parametrize("deed", ["removed", "replaced"])
def test_a_lock_file_removed_or_replaced_is_noticed(tmp_path: Path, deed: str):
    with RunLock(tmp_path) as lock:
        lock.require_held()
        (tmp_path / "run.lock").unlink()
        if deed == "replaced":
            (tmp_path / "run.lock").touch()
        with pytest.raises(UnsafeError, match="removed or replaced while this writer held it"):
            lock.require_held()


def test_what_an_earlier_holder_left_is_gone(tmp_path: Path):
    (tmp_path / "run.lock").write_bytes(b"x" * 2000)
    with RunLock(tmp_path) as lock:
        assert lock_state(tmp_path).holder == lock.holder


class Replacing(FileSystem):
    """Replaces the lock file just before it is locked, so many times."""

    def __init__(self, times: float) -> None:
        self.times = times

    def perform(
        self, operation: str, path: Any, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        if operation == "lock" and self.times > 0:
            self.times -= 1
            path.unlink()
            path.touch()
        return super().perform(operation, path, function, *arguments, **options)


def test_a_lock_file_replaced_before_it_is_locked_is_locked_anew(tmp_path: Path):
    with RunLock(tmp_path, fs=Replacing(2)) as lock:
        lock.require_held()
        assert lock_state(tmp_path).state == "held"


def test_a_lock_file_that_keeps_being_replaced_is_refused(tmp_path: Path):
    with pytest.raises(UnsafeError, match="keeps being replaced"):
        RunLock(tmp_path, fs=Replacing(float("inf")))


def test_a_closed_lock_is_not_held(tmp_path: Path):
    lock = RunLock(tmp_path)
    lock.close()
    lock.close()
    with pytest.raises(UnsafeError):
        lock.require_held()


def test_a_forked_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path):
    """The middle process takes the lock and forks one that stays; when the middle one ends, the lock is free."""
    started, hold = os.pipe(), os.pipe()
    middle = os.fork()
    if middle == 0:
        lock = RunLock(tmp_path)
        if os.fork() == 0:
            os.close(hold[1])
            os.write(started[1], b"1" if lock._descriptor is None else b"0")
            os.read(hold[0], 1)
        os._exit(0)
    os.waitpid(middle, 0)
    try:
        assert os.read(started[0], 1) == b"1"
        assert lock_state(tmp_path).state == "free"
    finally:
        for descriptor in (*started, *hold):
            os.close(descriptor)
