"""Long logs written without a recorder: honest counters of one session or many, with skips and what is not finite."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ledger.records.events import Event, Overflow, SessionStart, Train, encode_event
from ledger.records.layout import LOG
from ledger.records.parts import Position, Superseded
from ledger.storage.chain import chain_line, first_chain
from ledger.storage.log_reader import read_log
from tests.support.toy import MICROBATCHES_PER_EPOCH, ToySettings, run_toy

SKIP_EVERY = 997
SPIKE_AT = 123_457
SPIKE = 77.25


def write_long_run(run: Path, *, events: int, sessions: int = 1) -> None:
    """Write a run whose log has so many train and overflow events; its checkpoints and end are left out.

    Of several sessions each begins again from the start and does the work of the one before once more.
    """
    short = run.with_name(f"{run.name}-short")
    run_toy(short, ToySettings(target_step=1, policy="none", evaluate_every=None, evidence=False))
    with read_log(short / LOG) as reader:
        start = next(line for line in reader if line.event is not None)
        train = next(line.event for line in reader if isinstance(line.event, Train))
    run.mkdir()
    for folder in ("recipes", "environments"):
        shutil.copytree(short / folder, run / folder)
    assert isinstance(start.event, SessionStart)
    each, chain = events // sessions, first_chain(start.event.run_id)
    with (run / LOG).open("wb") as log:
        for session in range(1, sessions + 1):
            for event in _session(start.event, train, session=session, count=each):
                line, chain = chain_line(chain, encode_event(event))
                log.write(line)
    shutil.rmtree(short)


def _session(start: SessionStart, train: Train, *, session: int, count: int) -> Iterator[Event]:
    """Yield a session of so many events behind its start."""
    seq = (session - 1) * (count + 1)
    if session > 1:
        applied = count - count // SKIP_EVERY
        start = msgspec.structs.replace(
            start,
            seq=seq,
            session=session,
            session_id=f"session-{session}",
            run=None,
            start="restart",
            previous_session="unclean",
            superseded=Superseded(applied, count, 2 * count, 16 * count, count + 1),
        )
    yield start
    for event in _events(train, count=count):
        yield msgspec.structs.replace(event, seq=seq + event.seq, session=session)


def _events(train: Train, *, count: int) -> Iterator[Event]:
    step = 0
    for attempts in range(1, count + 1):
        is_skipped = attempts % SKIP_EVERY == 0
        step += not is_skipped
        moved = {
            "seq": attempts,
            "elapsed": attempts * 0.5,
            "step": step,
            "attempts": attempts,
            "skipped": attempts - step,
            "microbatches": 2 * attempts,
            "tokens_seen": 16 * attempts,
            "loss_tokens": 16 * attempts,
        }
        if is_skipped:
            envelope = {name: getattr(train, name) for name in ("session", "time")} | moved
            yield Overflow(
                **envelope,
                reason="nonfinite_loss",
                loss="NaN",
                grad_norm=None,
                loss_scale=None,
                growth_tracker=None,
                consecutive=1,
            )
            continue
        loss = 1.5 + 9 * math.exp(-attempts / 20_000) + 0.1 * math.sin(attempts * 1.7)
        loss = SPIKE if attempts == SPIKE_AT else loss
        norm = 0.4 + 0.3 * math.sin(attempts * 0.37) ** 2
        since = 2 if attempts % SKIP_EVERY == 1 and attempts > 1 else 1
        epoch, microbatch = divmod(2 * attempts, MICROBATCHES_PER_EPOCH)
        yield msgspec.structs.replace(
            train,
            **moved,
            window=msgspec.structs.replace(
                train.window,
                attempts=since,
                skipped=since - 1,
                microbatches=2 * since,
                tokens=16 * since,
                loss_tokens=16 * since,
                seconds=0.25,
                data_seconds=0.0,
            ),
            cursor={"train": Position(epoch, 8 * microbatch)},
            batches=[f"{number:016x}" for number in range(2 * (attempts - since), 2 * attempts)],
            loss=loss,
            loss_last=loss,
            grad_norm=norm,
            grad_norm_max=norm,
            memory={"peak_bytes": 1e9 + attempts},
        )
