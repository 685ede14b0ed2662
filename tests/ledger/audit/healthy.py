"""Honest runs of every kind that the tests start from, made by the recorder itself."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.maintain import seal_run, write_verdict
from ledger.recipes import identity_leaves, identity_sha256
from ledger.recorder import RunRecorder
from ledger.records.documents import Verdict
from ledger.records.locks import LockedPilot, RecipeLock
from ledger.records.parts import Cursor, DataIdentities, Position
from ledger.storage.documents import document_sha256
from tests.ledger.audit.branching import BRANCHED
from tests.ledger.audit.reading import READING, DataSettings
from tests.support.toy import (
    DATA_SHA256,
    TOKENS_PER_MICROBATCH,
    Killed,
    ToyLoop,
    ToySettings,
    begin,
    environment,
    mortal,
    run_toy,
    train,
)

NOTE = "a note before the end"


def kill_at(moment: str, *, time: int = 1) -> Callable[[RunRecorder, str], None]:
    """Return a hook that kills the toy at the given occurrence of a moment."""
    seen = 0

    def before(_: RunRecorder, now: str) -> None:
        nonlocal seen
        seen += now == moment
        if now == moment and seen == time:
            raise Killed

    return before


def write_note(recorder: RunRecorder, moment: str) -> None:
    """Leave a note before the end and before the first evaluation."""
    if moment in ("end", "final evaluation"):
        recorder.note(NOTE)


def killed(run_dir: Path, settings: ToySettings, *, at: str, time: int = 1, **options: Any) -> None:
    """Run until the process dies."""
    with pytest.raises(Killed):
        run_toy(run_dir, settings, before=kill_at(at, time=time), **options)


SMALL = ToySettings(target_step=6, checkpoint_interval=3, evaluate_every=3)


def plain(run_dir: Path) -> None:
    """One session, from the beginning to the target."""
    run_toy(run_dir, SMALL, before=write_note)


def interrupted(run_dir: Path) -> None:
    """Killed in mid-training: no end."""
    killed(run_dir, SMALL, at="microbatch", time=10)
    with RunRecorder(run_dir):
        pass  # the lock file is then this process's


def resumed(run_dir: Path) -> None:
    """Killed after a checkpoint, resumed; two updates are redone."""
    killed(run_dir, SMALL, at="microbatch", time=12)
    run_toy(run_dir, SMALL, start="auto", before=write_note)


def skipping(run_dir: Path) -> None:
    """Skips attempts, two of them in a row, and logs every second step."""
    settings = dataclasses.replace(SMALL, skip_attempts=frozenset({2, 3, 5}), interval=2, evidence=False)
    run_toy(run_dir, settings, before=write_note)


def scaling(run_dir: Path) -> None:
    """Scales the loss: grows, overflows, skips for another reason, is killed with the count mid-way and resumed."""
    settings = dataclasses.replace(
        SMALL,
        target_step=12,
        checkpoint_interval=4,
        overflow_attempts=frozenset({1, 6, 12}),
        skip_attempts=frozenset({8}),
    )
    killed(run_dir, settings, at="microbatch", time=14)
    run_toy(run_dir, settings, start="auto", before=write_note)


def warming(run_dir: Path) -> None:
    """Warms up over eight updates, skips two attempts, is killed on the way and resumed."""
    settings = dataclasses.replace(SMALL, target_step=9, warmup_steps=8, skip_attempts=frozenset({2, 5}))
    killed(run_dir, settings, at="microbatch", time=17)
    run_toy(run_dir, settings, start="auto", before=write_note)


def locked(run_dir: Path) -> None:
    """Started under a recipe lock, killed and resumed under it."""
    settings = dataclasses.replace(SMALL, evidence=False)
    pilot = run_dir.with_name("locked-pilot")
    run_toy(pilot, settings)
    lock = lock_of(settings, reconcile(pilot, rehash=True), pilot)
    for start, before in (("fresh", kill_at("microbatch", time=9)), ("auto", write_note)):
        loop = ToyLoop(settings)
        recorder = RunRecorder(run_dir)
        with suppress(Killed), mortal(recorder):
            begin(recorder, loop, start=start, recipe_lock=lock)  # type: ignore[arg-type]
            train(recorder, loop, before)


def lock_of(settings: ToySettings, verdict: Verdict, pilot: Path) -> RecipeLock:
    """Return a lock of a toy's recipe that rests on one pilot."""
    recipe = settings.recipe()
    assert verdict.run_id is not None
    assert verdict.log_head is not None
    return RecipeLock(
        tool_version="0",
        created="2026-01-01T00:00:00.000000Z",
        identity=identity_leaves(recipe),
        identity_sha256=identity_sha256(recipe),
        checkpoint=recipe.config["checkpoint"],
        target_step=settings.target_step,
        tokens_per_update=TOKENS_PER_MICROBATCH * settings.accumulation,
        planned_tokens=settings.target_step * TOKENS_PER_MICROBATCH * settings.accumulation,
        data=DataIdentities(train=DATA_SHA256, validation=DATA_SHA256),
        code={"commit": None},
        packages={"toy": "1"},
        unpinned=[],
        pilots=[
            LockedPilot(
                stage="stability",
                path=str(pilot),
                run_id=verdict.run_id,
                identity_sha256=identity_sha256(recipe),
                log_head=verdict.log_head,
                verdict=verdict.verdict,
                verdict_sha256=document_sha256(verdict),
            )
        ],
        budget=None,
        replaces=None,
    )


def sparse(run_dir: Path) -> None:
    """Killed long before its first train event, restarted, stopped, resumed from a superseded checkpoint."""
    settings = ToySettings(target_step=8, interval=100, checkpoint_interval=3, accumulation=3)
    killed(run_dir, settings, at="microbatch", time=5)
    killed(run_dir, settings, at="end", start="auto")
    run_toy(
        run_dir, settings, start="resume", checkpoint=next((run_dir / "checkpoints").glob("step-00000003*"))
    )
    run_toy(run_dir, dataclasses.replace(settings, target_step=9), start="auto")


def weightless(run_dir: Path) -> None:
    """Keeps no weights; failed once, started again from the beginning."""
    settings = ToySettings(target_step=4, policy="none", checkpoint_interval=None)

    def fail(_: RunRecorder, moment: str) -> None:
        if moment == "attempt":
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        run_toy(run_dir, settings, before=fail)
    run_toy(run_dir, settings, start="restart")


def closing(run_dir: Path) -> None:
    """Killed between the final checkpoint and the end: a second session makes no update and closes."""
    killed(run_dir, SMALL, at="final evaluation")
    run_toy(run_dir, SMALL, start="auto")


def without_checkpoint(run_dir: Path) -> None:
    """Killed before its first checkpoint; starts anew by itself."""
    killed(run_dir, SMALL, at="microbatch", time=3)
    run_toy(run_dir, SMALL, start="auto", before=write_note)


def orphaned(run_dir: Path) -> None:
    """Killed between a checkpoint's rename and its event, then resumed from it."""
    killed(run_dir, SMALL, at="microbatch", time=7)
    log = run_dir / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith(b'{"event":"checkpoint"'))
    log.write_bytes(b"".join(lines[:last]))
    run_toy(run_dir, SMALL, start="auto")


class RepeatLoop(ToyLoop):
    """A toy that repeats its first two microbatches."""

    def draw(self) -> tuple[bytes, Cursor]:
        """Return one of two digests and the cursor behind it."""
        epoch, offset = self.position.epoch, self.position.offset
        digest = hashlib.sha256(f"batch {offset}".encode()).digest()
        self.position = Position(epoch, 8) if offset == 0 else Position(epoch + 1, 0)
        self.draws += 1
        return digest, {"train": self.position}


def repeating(run_dir: Path) -> None:
    """Repeats its first two microbatches, as an overfit does."""
    loop = RepeatLoop(DataSettings(target_step=5, data={"repeat": 2}, evaluate_every=None))
    with RunRecorder(run_dir) as recorder:
        begin(recorder, loop)
        train(recorder, loop)


def moved(run_dir: Path) -> None:
    """Resumed in another environment."""
    killed(run_dir, SMALL, at="microbatch", time=12)
    loop = ToyLoop(SMALL)
    other = environment().model_copy(update={"packages": {"toy": "2"}})
    with RunRecorder(run_dir) as recorder:
        begin(recorder, loop, start="auto", environment=other)
        train(recorder, loop)


def sealed(run_dir: Path) -> None:
    """Exported, judged and sealed."""
    run_toy(run_dir, SMALL)
    (run_dir / "exports").mkdir()
    (run_dir / "exports" / "model.safetensors").write_bytes(b"weights")
    write_verdict(run_dir, reconcile(run_dir, rehash=True))
    seal_run(run_dir, reconcile(run_dir, rehash=True))
    (run_dir / "logs").mkdir()
    (run_dir / "logs" / "later.txt").write_text("for people")


HEALTHY = (
    {
        make.__name__: make
        for make in (
            plain,
            interrupted,
            resumed,
            skipping,
            scaling,
            warming,
            locked,
            sparse,
            weightless,
            closing,
            without_checkpoint,
            orphaned,
            repeating,
            moved,
            sealed,
        )
    }
    | READING
    | BRANCHED
)

INCOMPLETE = {"interrupted": {"LG304", "LG701"}}
"""What an honest run that is not done lacks."""

WARNED = {
    "orphaned": {"LG401"},
    "moved": {"LG605"},
    "weightless": {"LG307"},
    "on_duplicates": {"LG503"},
}
"""What an honest run is warned about, no more."""
