"""Whatever honestly happens to a run, the audit never calls it broken, and what is finished passes.

Sessions train, skip by a law, measure, save, prune, export, are killed at any write and leave torn tails; they go on,
begin again, fork, branch, change what may be changed; between them people repair, waive and seal. After each of it the
audit and the naive account must agree to the last token.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from ledger.audit import reconcile
from ledger.checkpoints import CompleteCheckpoint, find_checkpoints
from ledger.maintain import add_waiver, repair_run, seal_run, write_verdict
from ledger.recorder import RunRecorder
from ledger.records.documents import Verdict
from ledger.records.layout import LOG
from ledger.records.parts import Position
from ledger.records.waivers import Waiver
from tests.support.audited import audit
from tests.support.reading import history
from tests.support.systems import FaultyFileSystem, QuickFileSystem
from tests.support.toy import Killed, ToyLoop, ToySettings, attempt, evaluate, plan_of, save, train

QUICK = QuickFileSystem()
NEVER = "2999-01-01T00:00:00.000000Z"
LENGTH = 8
"""Updates of a run, unless its target is raised."""
faults = (
    st.none()
    | st.none()
    | st.none()
    | st.tuples(st.integers(0, 60), st.sampled_from(["killed", "killed after"]))
)
intervals = st.integers(1, 4)
attempts = st.frozensets(st.integers(1, 14), max_size=4)


class AuditMachine(RuleBasedStateMachine):
    """Lives through a run's history, and those of its branches, without a fault of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.root = Path(self.temporary.name)
        self.run = self.root / "run-1"
        self.origin: tuple[CompleteCheckpoint, str] | None = None
        """The checkpoint of another run that this one began at, and how."""
        self.recorder: RunRecorder | None = None
        self.is_sealed = False

    def teardown(self) -> None:
        """Judge what came of it."""
        if self.recorder is not None:
            self.recorder.abandon()
        try:
            self.judge()
        finally:
            self.temporary.cleanup()

    @initialize(
        accumulation=st.integers(1, 3),
        interval=intervals,
        evidence=st.booleans(),
        skips=attempts,
        overflows=st.none() | attempts,
        warmup=st.integers(0, 6),
        fault=faults,
    )
    def create(self, accumulation, interval, evidence, skips, overflows, warmup, fault):
        self.settings = ToySettings(
            target_step=LENGTH,
            accumulation=accumulation,
            interval=interval,
            evidence=evidence,
            skip_attempts=skips,
            overflow_attempts=overflows,
            warmup_steps=warmup,
            checkpoint_interval=3,
            evaluate_every=4,
        )
        self.start("fresh", None, interval=interval, fault=fault)

    # Sessions.

    def start(self, kind, parent: CompleteCheckpoint | None, *, interval, fault, more=0, mode=None):
        """Start a session from a checkpoint or from the beginning."""
        target = self.target() + more
        self.settings = dataclasses.replace(self.settings, interval=interval, target_step=target)
        self.loop = ToyLoop(self.settings)
        if parent is None and self.origin is not None:
            parent, mode = self.origin
        if parent is not None:
            self.loop.restore(parent)
        if mode == "initialise":
            fresh = ToyLoop(self.settings)
            self.loop.draws, self.loop.updates, self.loop.position = 0, 0, Position(0, 0)
            self.loop.scaler = fresh.scaler
        self.fs = FaultyFileSystem()
        self.recorder = RunRecorder(self.run, fs=self.fs)
        plan = plan_of(self.loop, start=kind, parent=parent, mode=mode)

        def enter() -> None:
            self.alive.__enter__()
            self.alive.start(plan, capture=self.loop.capture)

        self.act(enter, fault)

    def target(self) -> int:
        """Return the target in force: that of the last session whose amendment reached the log."""
        target = history(self.run).target_step() if self.has_begun() else None
        return LENGTH if target is None else target

    def complete(self) -> list[CompleteCheckpoint]:
        return find_checkpoints(self.run) if self.run.exists() else []

    def has_begun(self) -> bool:
        return (self.run / LOG).exists() and b"\n" in (self.run / LOG).read_bytes()

    def is_idle(self) -> bool:
        return self.recorder is None and not self.is_sealed

    @precondition(lambda self: self.is_idle() and not self.has_begun())
    @rule(interval=intervals, fault=faults)
    def begin_once_more(self, interval, fault):
        self.start("fresh" if self.origin is None else "branch", None, interval=interval, fault=fault)

    @precondition(lambda self: self.is_idle() and self.has_begun())
    @rule(interval=intervals, more=st.sampled_from([0, 0, 2]), fault=faults)
    def go_on(self, interval, more, fault):
        with RunRecorder(self.run, fs=QUICK) as recorder:
            latest = recorder.latest_checkpoint()
        self.start("auto", latest, interval=interval, more=more, fault=fault)

    @precondition(lambda self: self.is_idle() and self.has_begun())
    @rule(interval=intervals, fault=faults, luck=st.integers(0, 3))
    def restart(self, interval, fault, luck):
        if not luck:  # rarely, since nothing is left to go back to
            self.start("restart", None, interval=interval, fault=fault)

    @precondition(lambda self: self.is_idle() and self.has_begun() and self.complete())
    @rule(data=st.data(), interval=intervals, fault=faults)
    def fork_from_any_checkpoint(self, data, interval, fault):
        parent = data.draw(st.sampled_from(sorted(self.complete(), key=lambda found: found.path)))
        self.start("resume", parent, interval=interval, fault=fault)

    @precondition(lambda self: self.recorder is None and self.has_begun() and self.complete())
    @rule(data=st.data(), interval=intervals, fault=faults, mode=st.sampled_from(["continue", "initialise"]))
    def branch(self, data, interval, fault, mode):
        """Begin another run at a checkpoint of this one, and follow that."""
        parent = data.draw(st.sampled_from(sorted(self.complete(), key=lambda found: found.path)))
        self.judge()
        number = int(self.run.name.partition("-")[2]) + 1
        self.run, self.origin, self.is_sealed = self.root / f"run-{number}", (parent, mode), False
        begin = parent.manifest.counters.step if mode == "continue" else 0
        more = max(0, begin + 2 - LENGTH)
        self.start("branch", parent, interval=interval, more=more, fault=fault, mode=mode)

    # Work.

    @property
    def alive(self) -> RunRecorder:
        """The recorder of the session under way."""
        assert self.recorder is not None
        return self.recorder

    def act(self, action: Callable[[], object], fault) -> bool:
        """Do something, perhaps dying of it; returns whether the session lives on."""
        if fault is not None:
            self.fs.arm(*fault)
        try:
            action()
        except Killed:
            self.alive.abandon()
            self.recorder = None
            return False
        finally:
            self.fs.disarm()
        return True

    def may_train(self) -> bool:
        return self.recorder is not None and self.alive.step < self.alive.target_step

    @precondition(lambda self: self.may_train())
    @rule(number=st.integers(1, 4), fault=faults)
    def attempt_updates(self, number, fault):
        def work() -> None:
            for _ in range(number):
                if self.may_train():
                    attempt(self.alive, self.loop)

        self.act(work, fault)

    @precondition(lambda self: self.recorder is not None)
    @rule(fault=faults)
    def measure(self, fault):
        self.act(lambda: evaluate(self.alive, self.loop, complete=False), fault)

    @precondition(lambda self: self.recorder is not None)
    @rule(kind=st.sampled_from(["interval", "milestone", "signal"]), fault=faults)
    def checkpoint(self, kind, fault):
        self.act(lambda: save(self.alive, self.loop, kind), fault)

    @precondition(lambda self: self.recorder is not None)
    @rule(keep=st.integers(1, 2), fault=faults)
    def prune(self, keep, fault):
        self.act(lambda: self.alive.prune(keep_last=keep), fault)

    @precondition(lambda self: self.recorder is not None)
    @rule(fault=faults)
    def export(self, fault):
        if list(self.run.glob(f"exports/*{self.alive.step:08d}*s{self.alive.session:02d}*")):
            return  # once a step and session

        def write() -> None:
            with self.alive.export() as folder:
                self.loop.save(folder, self.alive.tensor_metadata())
                (folder / "optimizer.safetensors").unlink()

        self.act(write, fault)

    @precondition(lambda self: self.recorder is not None)
    @rule(fault=faults)
    def note(self, fault):
        self.act(lambda: self.alive.note("by hand"), fault)

    @precondition(lambda self: self.recorder is not None)
    @rule()
    def look_at_it_live(self):
        """Who holds the run may write at any time: nothing is wrong with it, and nothing may be claimed."""
        if not self.has_begun():
            return
        verdict = reconcile(self.run)
        assert verdict.finding_counts["error"] == 0, verdict.findings
        assert (verdict.verdict, verdict.status) == ("incomplete", "running")

    # Ends.

    @precondition(lambda self: self.recorder is not None)
    @rule(fault=faults)
    def finish(self, fault):
        self.end(lambda: train(self.alive, self.loop), fault)

    @precondition(lambda self: self.recorder is not None)
    @rule(fault=faults)
    def stop(self, fault):
        if self.alive.step < self.alive.target_step:
            self.end(lambda: None, fault)

    @precondition(lambda self: self.recorder is not None)
    @rule(error=st.sampled_from([RuntimeError, KeyboardInterrupt, SystemExit]), moments=st.integers(1, 4))
    def fail(self, error, moments):
        """Leave by an exception, perhaps in the middle of an accumulation window."""
        seen: list[str] = []

        def before(_recorder: object, moment: str) -> None:
            seen.append(moment)
            if len(seen) == moments:
                raise error

        recorder = self.alive

        def work() -> None:
            with ExitStack() as stack:
                stack.push(recorder.__exit__)
                if self.may_train():
                    attempt(recorder, self.loop, before)
                raise error

        with pytest.raises(error):
            work()
        self.recorder = None
        self.judge()

    def end(self, work: Callable[[], object], fault) -> None:
        def leave() -> None:
            work()
            self.alive.__exit__(None, None, None)

        if self.act(leave, fault):
            self.recorder = None
            self.judge()

    @precondition(lambda self: self.recorder is not None)
    @rule(torn=st.integers(0, 400), data=st.data())
    def die(self, torn, data):
        """Be killed between two reports, perhaps in the middle of writing a line."""
        self.alive.abandon()
        self.recorder = None
        if self.has_begun():
            line = data.draw(st.sampled_from((self.run / LOG).read_bytes().splitlines()))
            with (self.run / LOG).open("ab") as log:
                log.write(line[: min(torn, len(line) - 1)])
        self.judge()

    # What people do between sessions.

    @precondition(lambda self: self.is_idle() and self.has_begun())
    @rule()
    def repair(self):
        repair_run(self.run, apply=True, fs=QUICK)
        verdict = self.judge()
        assert verdict is not None
        assert "LG104" not in {found.rule for found in verdict.findings}

    @precondition(lambda self: self.is_idle() and self.has_begun())
    @rule()
    def waive_what_is_missing(self):
        verdict = self.judge()
        assert verdict is not None
        for found in verdict.findings:
            if found.rule == "LG701" and found.waiver is None:
                waiver = Waiver(rule=found.rule, where=found.where, reason="known", name="me", expires=NEVER)
                add_waiver(self.run, waiver, fs=QUICK)
        self.judge()

    @precondition(lambda self: self.is_idle() and self.has_begun())
    @rule()
    def seal(self):
        verdict = reconcile(self.run, rehash=True)
        if verdict.verdict != "passed":
            return
        write_verdict(self.run, verdict, fs=QUICK)
        seal_run(self.run, reconcile(self.run, rehash=True), fs=QUICK)
        self.is_sealed = True
        assert reconcile(self.run, rehash=True).verdict == "passed"

    @precondition(lambda self: self.is_sealed)
    @rule()
    def look_at_it_sealed(self):
        assert reconcile(self.run).verdict == "passed"

    def judge(self) -> Verdict | None:
        """Audit the run as it lies there; the naive account agrees."""
        return audit(self.run) if self.has_begun() else None


class FewHistories(AuditMachine):
    """The same, for the suite that takes little time."""


TestFewHistories = FewHistories.TestCase
TestFewHistories.settings = settings(max_examples=2, stateful_step_count=15)
TestManyHistories = pytest.mark.slow(AuditMachine.TestCase)
TestManyHistories.settings = settings(max_examples=50, stateful_step_count=30)
