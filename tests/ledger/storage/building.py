"""What the tests of the storage layer are built from: events, a clock that is told the time, a failing file system."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ledger.records.events import Event, Note, SessionStart, Train, Window
from ledger.records.fields import FIRST_DATA_CHAIN
from ledger.records.parts import NOTHING_SUPERSEDED, DataIdentities, Position, StateDigests
from ledger.storage.filesystem import FileSystem
from ledger.storage.log import EventLog

RUN_ID = "run-1"
DIGEST = "ab" * 32
NO_STATE = StateDigests(None, None, None, None, None, None, None)
TIME = "2026-01-02T03:04:05.000006Z"


def envelope(seq: int, **changes: Any) -> dict[str, Any]:
    fields = {
        "seq": seq,
        "session": 1,
        "time": TIME,
        "elapsed": float(seq),
        "step": 0,
        "attempts": 0,
        "skipped": 0,
        "microbatches": 0,
        "tokens_seen": 0,
        "loss_tokens": 0,
    }
    return fields | changes


def session_start(seq: int = 0, *, run_id: str = RUN_ID, **changes: Any) -> SessionStart:
    fields: dict[str, Any] = {
        "log_version": 1,
        "run_id": run_id,
        "session_id": f"session-{seq}",
        "argv": ["train", "--config", "pilot.yaml"],
        "run": None,
        "recipe_sha256": DIGEST,
        "identity_sha256": DIGEST,
        "environment_sha256": DIGEST,
        "data": DataIdentities(DIGEST, None),
        "data_parallel": 1,
        "tokens_per_microbatch": 4,
        "accumulation": 1,
        "host": "host",
        "pid": 1,
        "boot_id": "boot",
        "start": "fresh",
        "parent": None,
        "superseded": NOTHING_SUPERSEDED,
        "previous_session": "none",
        "cursor": {"train": Position(0, 0)},
        "data_chain": FIRST_DATA_CHAIN,
        "state": NO_STATE,
    }
    return SessionStart(**envelope(seq), **(fields | changes))


def note(seq: int, text: str = "a note") -> Note:
    return Note(**envelope(seq), text=text)


def train(seq: int, **changes: Any) -> Train:
    fields: dict[str, Any] = {
        "window": Window(1, 1, 0, 1, 4, 4, 0.25, 0.0625),
        "loss": 2.5,
        "loss_last": 2.5,
        "grad_norm": 1.5,
        "grad_norm_max": 1.5,
        "clipped": 0,
        "lr": {"decay": 0.001, "no_decay": 0.001},
        "loss_scale": None,
        "growth_tracker": None,
        "memory": {},
        "cursor": {"train": Position(0, 4 * seq)},
        "batches": ["0123456789abcdef"],
        "data_chain": DIGEST,
        "state": None,
        "diagnostics": {},
    }
    totals = {
        "step": seq,
        "attempts": seq,
        "microbatches": seq,
        "tokens_seen": 4 * seq,
        "loss_tokens": 4 * seq,
    }
    return Train(**envelope(seq, **totals), **(fields | changes))


def events(count: int) -> list[Event]:
    """A session_start and `count - 1` events behind it."""
    return [session_start(), *(note(seq) if seq % 3 == 0 else train(seq) for seq in range(1, count))]


def write_log(path: Path, written: Iterable[Event], *, run_id: str = RUN_ID) -> bytes:
    """Write a log and return its bytes."""
    with EventLog.create(path, run_id) as log:
        for event in written:
            log.append(event)
    return path.read_bytes()


class ToldClock:
    """A clock that shows what it is told."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> str:
        return TIME

    def monotonic(self) -> float:
        return self.seconds


class CountingFileSystem(FileSystem):
    """The real file system that keeps a list of the operations done."""

    def __init__(self) -> None:
        self.operations: list[str] = []

    def perform(
        self, operation: str, path: Any, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        self.operations.append(operation)
        return super().perform(operation, path, function, *arguments, **options)


class FailingFileSystem(CountingFileSystem):
    """Fails the operation of one number (from 0): instead of it, after it, or with a part of it done."""

    def __init__(self, number: int, *, mode: str = "before", code: int = errno.EIO) -> None:
        super().__init__()
        self.number = number
        self.mode = mode
        self.code = code

    @property
    def has_failed(self) -> bool:
        return len(self.operations) > self.number

    def perform(
        self, operation: str, path: Any, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        if len(self.operations) != self.number:
            return super().perform(operation, path, function, *arguments, **options)
        self.operations.append(operation)
        if self.mode == "after" or operation == "close":
            with suppress(OSError):
                function(*arguments, **options)
        elif self.mode == "torn" and operation == "write":
            descriptor, data = arguments
            os.write(descriptor, data[: len(data) // 2])
        raise OSError(self.code, os.strerror(self.code))
