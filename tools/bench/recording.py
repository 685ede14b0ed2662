"""Recording train events against `json.dumps` and a bare write, without and with syncs; the recorder's share of a step.

The floor encodes an event's fields by `json.dumps` and writes them unbuffered; the log encodes, proves that the line
reads back, chains and writes a prepared event. The whole report is what a loop makes at a logging interval of 1: one
microbatch, one update, with counters, phases and history, without digests of the live state. The share is what the
digest of a batch of 8 x 1,024 ids and that report take of a step of 100 ms.

    python -P tools/bench/recording.py [--rounds N] [--events N]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from _measure import Contender, measure

from ledger.dataset.digest import share_digest
from ledger.recorder import RunRecorder
from ledger.records.layout import LOG
from ledger.records.parts import Position
from ledger.storage.clock import SystemClock
from ledger.storage.log import EventLog, read_log
from tests.support.toy import TOKENS_PER_MICROBATCH, ToyLoop, ToySettings, plan_of

STEP_SECONDS = 0.1
SETTINGS = ToySettings(target_step=10**9, accumulation=1, interval=1, evidence=False, policy="none")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each kind")
    parser.add_argument(
        "--events", type=int, default=2_000, help="events of one measurement, a tenth with syncs"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder) / "plain", SystemClock(), events=options.events, rounds=options.rounds)
        compare(Path(folder) / "synced", HastyClock(), events=options.events // 10, rounds=options.rounds)
    return 0


class HastyClock(SystemClock):
    """A clock by which a second passes between any two looks, so that every event is synced."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Return one second more than the last time."""
        self._seconds += 1.0
        return self._seconds


def compare(run: Path, clock: SystemClock, *, events: int, rounds: int) -> None:
    """Let recorder and floor write so many events in turns."""
    is_synced = isinstance(clock, HastyClock)
    loop = ToyLoop(SETTINGS)
    with RunRecorder(run, clock=clock) as recorder:
        recorder.start(plan_of(loop), capture=loop.capture)
        report(recorder)
        line = (run / LOG).read_bytes().splitlines()[1]
        floor = Floor(run.with_suffix(".floor"), json.loads(line), is_synced=is_synced)
        print(
            f"\n{'a sync after each event' if is_synced else 'no syncs'}; an event takes {len(line):,} bytes"
        )
        log = prepared_log(run, clock)
        contenders = {
            "floor": Contender(repeated(floor.write, events), events),
            "log": Contender(repeated(log, events), events),
            "recorder": Contender(repeated(lambda: report(recorder), events), events),
        }
        ratios = measure(contenders, rounds=rounds, unit="events/s", base="floor")
        print(
            f"an event takes the log {1 / ratios['log']:.2f} times, the whole report "
            f"{1 / ratios['recorder']:.2f} times the floor's time (target: at most {1.2 if is_synced else 3})"
        )
        if not is_synced:
            show_share(recorder, rounds=rounds)
        recorder.end("stopped", reason="measured")


def prepared_log(run: Path, clock: SystemClock) -> Callable[[], object]:
    """Return a function that encodes, chains and writes one train event to a log of its own."""
    with read_log(run / LOG) as reader:
        start, train = (line.event for line in reader)
    log = EventLog.create(run.with_suffix(".log"), start.run_id, clock=clock)
    log.append(start)
    numbers = itertools.count(1)
    return lambda: log.append(msgspec.structs.replace(train, seq=next(numbers)))


def report(recorder: RunRecorder) -> None:
    """Report one microbatch and one update; the recorder writes a train event."""
    recorder.microbatch(
        tokens=TOKENS_PER_MICROBATCH, digest=b"\1" * 32, cursor={"train": Position(0, recorder.step)}
    )
    recorder.updated(loss=1.25 + recorder.step * 1e-6, grad_norm=0.5, lr={"all": 0.01})


def repeated(work: Callable[[], object], count: int) -> Callable[[], None]:
    """Return a function that does the work so many times."""

    def run() -> None:
        for _ in range(count):
            work()

    return run


class Floor:
    """The same fields, encoded by the standard library and written without a buffer."""

    def __init__(self, path: Path, event: dict[str, object], *, is_synced: bool) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._event = event
        self._is_synced = is_synced

    def write(self) -> None:
        """Write one event."""
        os.write(self._descriptor, json.dumps(self._event).encode() + b"\n")
        if self._is_synced:
            os.fdatasync(self._descriptor)


def show_share(recorder: RunRecorder, *, rounds: int) -> None:
    """Print what recording takes of a step."""
    ids = np.arange(8 * 1_025, dtype="<u2").reshape(8, 1_025)
    digests = [seconds_of(lambda: share_digest(ids)) for _ in range(rounds)]
    reports = [seconds_of(lambda: report(recorder)) for _ in range(rounds)]
    shares = sorted((digest + event) / STEP_SECONDS for digest, event in zip(digests, reports, strict=True))
    print(
        f"\nrecorder's share of a step of 100 ms, by processor time: {statistics.median(shares):.3%} "
        f"({shares[0]:.3%} to {shares[-1]:.3%}; target: at most 0.5 %)"
    )


def seconds_of(work: Callable[[], object], *, count: int = 200) -> float:
    """Return the processor's seconds of one call, over `count` of them."""
    started = time.process_time()
    for _ in range(count):
        work()
    return (time.process_time() - started) / count


if __name__ == "__main__":
    sys.exit(main())
