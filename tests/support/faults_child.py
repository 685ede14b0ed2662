"""What child processes do in the tests with real processes: toy runs that tell what was acknowledged."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ledger.errors import LedgerError
from ledger.recorder import RunRecorder
from ledger.records.events import Event, Train
from ledger.storage.filesystem import OS
from ledger.storage.log import EventLog
from tests.support.faults_scenarios import finish_run
from tests.support.faults_server import acknowledge, arm_shim, shim_counts
from tests.support.faults_session import session
from tests.support.toy import ToyLoop, ToySettings, attempt, save, train


def toy(
    place: str,
    *,
    shim: dict[str, Any] | None = None,
    file_bytes: int | None = None,
    counts: bool = False,
) -> int:
    """Train a toy run to its target; returns the exit code that the command line would give."""
    if shim is not None:
        arm_shim(place, **shim)
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, resource.RLIM_INFINITY))
    code = exit_code(lambda: tell_all(lambda: finish_run(Path(place))))
    if counts:
        for name, count in shim_counts().items():
            acknowledge("count", name, count)
    return code


def exit_code(action: Callable[[], object]) -> int:
    """Do something and return the exit code of its error."""
    try:
        action()
    except LedgerError as error:
        return error.exit_code
    except MemoryError:
        return 9
    except KeyboardInterrupt:
        return 130
    return 0


def tell_all(action: Callable[[], object]) -> None:
    """Do something and tell each event that is tried, acknowledged, and promised to be synced."""
    append, sync = EventLog.append, EventLog.sync

    def telling_append(log: EventLog, event: Event) -> Any:
        acknowledge("try", event.seq)
        position = append(log, event)
        acknowledge("done", position.seq, position.chain)
        if not isinstance(event, Train):
            acknowledge("synced", position.seq)
        return position

    def telling_sync(log: EventLog) -> None:
        sync(log)
        if log.head is not None:
            acknowledge("synced", log.head.seq)

    with patch.object(EventLog, "append", telling_append), patch.object(EventLog, "sync", telling_sync):
        action()


def long_toy(place: str, *, seconds: float = 60.0, pause: float = 0.0) -> int:
    """Train a toy run for a while, an event every `pause` seconds; tells when the first step is done."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            attempt(recorder, loop)
            acknowledge("step", recorder.step)
            time.sleep(pause)

    settings = ToySettings(target_step=1_000_000, accumulation=1, evidence=False, evaluate_every=None)
    return exit_code(lambda: session(Path(place) / "run", OS, body, settings=settings))


def long_telling_toy(place: str) -> int:
    """Train a toy run until it is killed and tell everything about its log."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        while True:
            attempt(recorder, loop)
            if recorder.step % 5 == 0:
                save(recorder, loop, "interval")

    settings = ToySettings(target_step=1_000_000, accumulation=1, evidence=False, evaluate_every=None)
    return exit_code(lambda: tell_all(lambda: session(Path(place) / "run", OS, body, settings=settings)))


def hungry_toy(place: str, *, spare_bytes: int) -> int:
    """Train a toy run with so much memory to spare, filling it before every attempt."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + spare_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    hoard: list[bytearray] = []

    def fill(_recorder: RunRecorder, _moment: str) -> None:
        hoard.append(bytearray(1 << 20))

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        train(recorder, loop, fill)

    return exit_code(lambda: tell_all(lambda: session(Path(place) / "run", OS, body)))


def doomed_toy(place: str, *, group: str) -> int:
    """Train a toy run in a control group whose memory runs out: the kernel kills this process without a word."""
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    hoard: list[bytearray] = []

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        while True:
            attempt(recorder, loop)
            hoard.append(bytearray(b"x" * (1 << 20)))
            if recorder.step % 3 == 0:
                save(recorder, loop, "interval")

    settings = ToySettings(target_step=1_000_000, accumulation=1, evidence=False, evaluate_every=None)
    return exit_code(lambda: tell_all(lambda: session(Path(place) / "run", OS, body, settings=settings)))


def unprivileged_toy(place: str) -> int:
    """Try to continue a toy run as a user who may read it and not write."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    return exit_code(lambda: finish_run(Path(place)))


def race(place: str, *, racers: int) -> int:
    """Start a session in many processes at the same moment; tells every exit code and who won."""
    moment = time.time() + 0.3
    children = []
    for _ in range(racers):
        child = os.fork()
        if child == 0:
            os._exit(_racer(Path(place), moment=moment))
        children.append(child)
    for child in children:
        _, status = os.waitpid(child, 0)
        acknowledge("code", os.waitstatus_to_exitcode(status))
    return 0


def _racer(place: Path, *, moment: float) -> int:
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        acknowledge("won")
        train(recorder, loop)
        time.sleep(1.2)  # longer than a loser's patience

    time.sleep(max(0.0, moment - time.time()))
    return exit_code(lambda: session(place / "run", OS, body))


def parent_of_a_survivor(place: str) -> int:
    """Start a session, fork a child that outlives it, and die. The child tries everything that it must not do."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        if os.fork() == 0:
            time.sleep(0.2)  # the parent is dead by now
            for name, action in (
                ("note", lambda: recorder.note("from the child")),
                ("attempt", lambda: attempt(recorder, loop)),
                ("save", lambda: save(recorder, loop, "interval")),
                ("end", recorder.end),
            ):
                acknowledge("survivor", name, exit_code(action))
            acknowledge("survivor", "exit", exit_code(lambda: recorder.__exit__(None, None, None)))
            time.sleep(2.0)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    return exit_code(lambda: session(Path(place) / "run", OS, body))


if __name__ == "__main__":
    sys.exit(exit_code(lambda: finish_run(Path(sys.argv[1]))))
