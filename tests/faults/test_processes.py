"""Other processes: stopped holders, survivors of their parents, races, removed locks, killed and starved runs."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger.audit import reconcile
from ledger.cli import main
from ledger.errors import LockedError, StorageError, UnsafeError
from ledger.recorder import RunRecorder
from ledger.records.events import SessionEnd
from ledger.storage.filesystem import OS
from ledger.storage.lock import RunLock, lock_state
from ledger.storage.processes import is_process_alive
from tests.support.audited import assert_honest
from tests.support.faults import Snapshot
from tests.support.faults_checks import check_audit, check_documents, check_passed
from tests.support.faults_children import check_child, check_told
from tests.support.faults_scenarios import finish_run
from tests.support.faults_server import Server
from tests.support.faults_session import session
from tests.support.faults_tally import TALLY
from tests.support.reading import events
from tests.support.toy import ToyLoop, ToySettings, attempt

CHILD = "tests.support.faults_child"
V1_MEMORY = Path("/sys/fs/cgroup/memory")
V2_GROUPS = Path("/sys/fs/cgroup")
LONG = ToySettings(target_step=1_000_000, accumulation=1, evidence=False, evaluate_every=None)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as found:
        yield found


def wait_for(server: Server, word: str, *, count: int = 1) -> None:
    deadline = time.monotonic() + 30
    seen = 0
    while seen < count:
        seen += sum(words[0] == word for words in server.acknowledged())
        assert time.monotonic() < deadline, f"the child never said {word!r}"
        time.sleep(0.005)


def wait_until_free(run: Path) -> None:
    deadline = time.monotonic() + 10
    while lock_state(run).state == "held":
        assert time.monotonic() < deadline, "the lock stays held"
        time.sleep(0.005)


def wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 10
    while is_process_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def go_on(place: Path) -> None:
    """Continue a long run for two steps and stop."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        attempt(recorder, loop)

    session(place / "run", OS, body, settings=LONG)


@pytest.fixture
def holder(server, tmp_path) -> Iterator[int]:
    """A live writer of `tmp_path/run`."""
    pid = server.start(f"{CHILD}:long_toy", place=str(tmp_path), pause=0.01)
    wait_for(server, "step", count=2)
    yield pid
    os.kill(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGKILL)
    server.wait()
    server.acknowledged()


def test_a_stopped_holder_keeps_its_lock_and_is_named(holder, tmp_path, capsys):
    os.kill(holder, signal.SIGSTOP)
    before = Snapshot.of(tmp_path / "run")
    with pytest.raises(LockedError, match=f"process {holder} ") as refused:
        go_on(tmp_path)
    assert refused.value.exit_code == 5
    assert reconcile(tmp_path / "run").verdict == "incomplete"
    assert main(["reconcile", str(tmp_path / "run")]) == 3
    assert f"held by process {holder}" in capsys.readouterr().out
    assert Snapshot.of(tmp_path / "run") == before


def test_the_lock_of_a_killed_holder_is_free_at_once(holder, tmp_path):
    os.kill(holder, signal.SIGKILL)
    wait_until_free(tmp_path / "run")
    go_on(tmp_path)
    assert_honest(tmp_path / "run")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_file_that_is_removed_lets_no_second_writer_in(replaced, holder, tmp_path):
    lock = tmp_path / "run" / "run.lock"
    lock.unlink()
    if replaced:
        lock.write_bytes(b"")
    with pytest.raises((LockedError, StorageError, UnsafeError)):
        go_on(tmp_path)
    os.kill(holder, signal.SIGSTOP)
    kept = events(tmp_path / "run")
    assert kept[-1].session == 1
    os.kill(holder, signal.SIGKILL)
    wait_until_dead(holder)
    go_on(tmp_path)
    assert events(tmp_path / "run")[: len(kept)] == kept
    assert_honest(tmp_path / "run")


def test_a_lock_that_was_removed_or_replaced_is_noticed(tmp_path):
    with RunLock(tmp_path) as lock:
        lock.require_held()
        (tmp_path / "run.lock").rename(tmp_path / "elsewhere")
        with pytest.raises(UnsafeError, match="removed or replaced") as refused:
            lock.require_held()
        (tmp_path / "run.lock").write_bytes(b"")
        with pytest.raises(UnsafeError, match="removed or replaced"):
            lock.require_held()
    assert refused.value.exit_code == 7


def test_a_forked_child_that_outlives_its_parent_holds_and_writes_nothing(server, tmp_path):
    assert server.run(f"{CHILD}:parent_of_a_survivor", place=str(tmp_path)) == -signal.SIGKILL
    wait_until_free(tmp_path / "run")  # a child lets go as soon as it runs
    before = events(tmp_path / "run")
    finish_run(tmp_path)  # while the child lives
    told: list[list[str]] = []
    deadline = time.monotonic() + 10
    while len(told) < 5 and time.monotonic() < deadline:
        told += [words for words in server.acknowledged() if words[0] == "survivor"]
        time.sleep(0.01)
    assert [words[1] for words in told] == ["note", "attempt", "save", "end", "exit"]
    assert all(words[2] != "0" for words in told[:4]), told
    assert events(tmp_path / "run")[: len(before)] == before
    assert not check_passed(tmp_path / "run")


@pytest.mark.parametrize("racers", [2, 8])
def test_of_many_writers_that_start_at_once_one_wins(racers, server, tmp_path):
    assert server.run(f"{CHILD}:race", place=str(tmp_path), racers=racers) == 0
    told = server.acknowledged()
    codes = sorted(int(words[1]) for words in told if words[0] == "code")
    assert codes == [0] + [5] * (racers - 1)
    assert sum(words[0] == "won" for words in told) == 1
    assert not check_passed(tmp_path / "run")


def starve(server: Server, place: Path, spare_bytes: int) -> tuple[int, list[str]]:
    place.mkdir()
    code = server.run(f"{CHILD}:hungry_toy", place=str(place), spare_bytes=spare_bytes)
    problems = check_child(place, server.acknowledged())
    TALLY.add("a whole run", "RLIMIT_AS", problems=problems)
    return code, problems


def test_a_run_that_is_out_of_memory_fails_truthfully(server, tmp_path):
    code, problems = starve(server, tmp_path / "case", 2 << 20)
    assert not problems
    assert code == 9
    ends = [event for event in events(tmp_path / "case" / "run") if isinstance(event, SessionEnd)]
    assert ends[0].status == "failed"
    assert "MemoryError" in (ends[0].error or "")


@pytest.mark.slow
def test_a_run_that_is_out_of_memory_anywhere_loses_nothing(server, tmp_path):
    found = [starve(server, tmp_path / str(spare), spare << 18) for spare in range(80)]
    assert not [problem for _, problems in found for problem in problems]
    assert len({code for code, _ in found}) > 1


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """Make a control group of so much memory, by either version; skips where none can be made."""
    for root, file, swap in (
        (V1_MEMORY, "memory.limit_in_bytes", "memory.swappiness"),
        (V2_GROUPS, "memory.max", "memory.swap.max"),
    ):
        group = root / f"ledger-faults-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / file).exists():
                (group / file).write_text(str(limit_bytes))
                if (group / swap).exists():
                    (group / swap).write_text("0")
                yield group
                return
        finally:
            group.rmdir()
    pytest.skip("no control group with a memory limit can be made here")


@pytest.mark.parametrize(
    "mebibytes", [12, *(pytest.param(size, marks=pytest.mark.slow) for size in (15, 20, 33))]
)
def test_a_run_that_the_kernel_kills_for_its_memory_loses_nothing(mebibytes, server, tmp_path):
    with memory_group(mebibytes << 20) as group:
        code = server.run(f"{CHILD}:doomed_toy", place=str(tmp_path), group=str(group))
    assert code == -signal.SIGKILL
    run, told = tmp_path / "run", server.acknowledged()
    after = Snapshot.of(run)
    problems = [*check_told(run, told), *check_documents(run, Snapshot(), after), *check_audit(run, after)]
    TALLY.add("a whole run", "OOM kill", problems=problems)
    assert not problems
    assert sum(words[0] == "done" for words in told) > 1
    go_on(tmp_path)
    assert_honest(run)


def kill_at_random(server: Server, tmp_path: Path, *, times: int) -> None:
    chance = random.Random(11)
    for number in range(times):
        place = tmp_path / str(number)
        place.mkdir()
        pid = server.start(f"{CHILD}:long_telling_toy", place=str(place))
        time.sleep(chance.uniform(0.0, 0.15))
        os.kill(pid, signal.SIGKILL)
        assert server.wait() == -signal.SIGKILL
        told = server.acknowledged()
        run = place / "run"
        after = Snapshot.of(run)
        problems = check_told(run, told)
        problems += [
            *check_documents(run, Snapshot(), after),
            *(check_audit(run, after) if run.exists() else []),
        ]
        TALLY.add("a whole run", "SIGKILL at random", problems=problems)
        assert not problems
        go_on(place)
        assert_honest(run)


def test_killed_at_random_moments_nothing_acknowledged_is_lost(server, tmp_path):
    kill_at_random(server, tmp_path, times=4)


@pytest.mark.slow
def test_killed_at_many_random_moments_nothing_acknowledged_is_lost(server, tmp_path):
    kill_at_random(server, tmp_path, times=150)
