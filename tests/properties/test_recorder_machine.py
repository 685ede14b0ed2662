"""Whatever a loop does and wherever its process dies, the records say what a tiny model of the run predicts."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ledger.errors import RefusedError
from ledger.recorder import RunRecorder
from ledger.records.events import SessionEnd, SessionStart, TailRecovered
from ledger.records.layout import LOG, QUARANTINE
from tests.support.audited import audit
from tests.support.model import Line, Model, ModelCheckpoint, ModelSession, Totals
from tests.support.reading import events, history
from tests.support.systems import FaultyFileSystem, QuickFileSystem
from tests.support.toy import Killed, ToyLoop, ToySettings, begin, consume, evaluate

TOKENS = 8
TARGET = 9
KINDS = {
    "SessionStart": "start",
    "TailRecovered": "tail",
    "Amendment": "amendment",
    "Train": "train",
    "Overflow": "overflow",
    "Validation": "val",
    "Checkpoint": "checkpoint",
    "SessionEnd": "end",
}
faults = (
    st.none()
    | st.none()
    | st.none()
    | st.tuples(st.integers(0, 70), st.sampled_from(["killed", "killed after"]))
)
intervals = st.integers(1, 4)


class RecorderMachine(RuleBasedStateMachine):
    """Drives a recorder and the model side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.run = Path(self.temporary.name) / "run"
        self.model = Model()
        self.recorder: RunRecorder | None = None
        self.totals = Totals()

    def teardown(self) -> None:
        """Audit whatever came of it."""
        if self.recorder is not None:
            self.recorder.abandon()
        try:
            if self.model.sessions:
                self.compare_with_the_disk()
                audit(self.run)
        finally:
            self.temporary.cleanup()

    @initialize(accumulation=st.integers(1, 3), interval=intervals, fault=faults)
    def create(self, accumulation, interval, fault):
        self.accumulation = accumulation
        self.start(start="fresh", parent=None, interval=interval, target=TARGET, fault=fault)

    # Sessions.

    def start(self, *, start, parent: ModelCheckpoint | None, interval, target, fault):
        """Start a session from a checkpoint or from the beginning."""
        base = self.model.sessions[parent.session - 1 if parent else 0] if self.model.sessions else None
        amended = [] if base is None else [base.interval != interval, base.target != target]
        tails = sorted(self.tails() - self.model.named_tails)
        self.totals = parent.totals if parent else Totals()
        self.window = 0
        self.committed = {parent.totals.step} if parent else set()
        self.own: set[int] = set()
        lines = ["start"] + ["tail"] * len(tails) + ["amendment"] * sum(amended)
        self.session = ModelSession(len(self.model.sessions) + 1, parent, self.totals, interval, target)
        self.superseded = self.model.superseded_by(parent)
        self.loop = ToyLoop(
            ToySettings(
                target_step=target,
                accumulation=self.accumulation,
                interval=interval,
                evaluate_every=None,
                deterministic=False,
            )
        )
        self.fs = FaultyFileSystem()
        self.recorder = RunRecorder(self.run, fs=self.fs)
        named = self.run / parent.path if parent else None
        written = self.act(lambda: self._enter(start, named), lines, fault)
        self.model.named_tails.update(tails[: max(0, written - 1)])
        missing = lines[written:].count("amendment")
        if missing and base is not None:  # an amendment that never reached the log changed nothing
            self.session.target = base.target
        if written:
            self.compare_superseded()

    def _enter(self, start, named) -> None:
        assert self.recorder is not None
        self.recorder.__enter__()
        begin(self.recorder, self.loop, start=start, named=named)

    @property
    def alive(self) -> RunRecorder:
        """The recorder of the session under way."""
        assert self.recorder is not None
        return self.recorder

    def tails(self) -> set[str]:
        """Return the name of every torn tail: those in quarantine, and the one that still hangs on the log."""
        folder, log = self.run / QUARANTINE, self.run / LOG
        names = {path.name for path in folder.glob("tail-*")} if folder.exists() else set()
        content = log.read_bytes() if log.exists() else b""
        offset = content.rfind(b"\n") + 1
        if tail := content[offset:]:
            names.add(f"tail-{offset:016d}-{hashlib.sha256(tail).hexdigest()[:16]}.bin")
        return names

    def target_in_force(self) -> int:
        return self.model.sessions[-1].target if self.model.sessions else TARGET

    @precondition(lambda self: self.recorder is None and not self.model.sessions)
    @rule(interval=intervals, fault=faults)
    def start_fresh_again(self, interval, fault):
        self.start(start="fresh", parent=None, interval=interval, target=TARGET, fault=fault)

    @precondition(lambda self: self.recorder is None and self.model.sessions)
    @rule(interval=intervals, more=st.sampled_from([0, 0, 2]), fault=faults)
    def go_on(self, interval, more, fault):
        target = self.target_in_force() + more
        self.start(start="auto", parent=self.model.latest(), interval=interval, target=target, fault=fault)

    # Rarely: a restart leaves no branch to go back to.
    @precondition(lambda self: self.recorder is None and len(self.model.sessions) % 4 == 3)
    @rule(interval=intervals, fault=faults)
    def restart(self, interval, fault):
        target = self.target_in_force()
        self.start(start="restart", parent=None, interval=interval, target=target, fault=fault)

    @precondition(lambda self: self.recorder is None and self.model.checkpoints)
    @rule(data=st.data(), interval=intervals, fault=faults)
    def resume_a_named_checkpoint(self, data, interval, fault):
        self.resume(data.draw(st.sampled_from(sorted(self.model.checkpoints))), interval, fault)

    @precondition(lambda self: self.recorder is None and self.superseded_checkpoints())
    @rule(data=st.data(), interval=intervals, fault=faults)
    def go_back_to_a_superseded_branch(self, data, interval, fault):
        self.resume(data.draw(st.sampled_from(self.superseded_checkpoints())), interval, fault)

    def superseded_checkpoints(self) -> list[str]:
        return sorted(set(self.model.checkpoints) - {found.path for found in self.model.on_branch()})

    def resume(self, path: str, interval, fault) -> None:
        target, parent = self.target_in_force(), self.model.checkpoints[path]
        self.start(start="resume", parent=parent, interval=interval, target=target, fault=fault)

    @precondition(lambda self: self.recorder is None and self.model.sessions)
    @rule()
    def ask_for_a_lower_target(self):
        before = (self.run / LOG).read_bytes()
        loop = ToyLoop(
            ToySettings(
                target_step=self.target_in_force() - 1, accumulation=self.accumulation, deterministic=False
            )
        )
        with RunRecorder(self.run, fs=QuickFileSystem()) as recorder, pytest.raises(RefusedError):
            begin(recorder, loop, start="auto")
        assert (self.run / LOG).read_bytes() == before

    # Work.

    @precondition(lambda self: self.may_train())
    @rule(fault=faults)
    def update(self, fault):
        self.consume(self.accumulation)
        after = self.totals._replace(step=self.totals.step + 1, attempts=self.totals.attempts + 1)
        is_due = after.step % self.session.interval == 0
        self.act(self._update, ["train"] if is_due else [], fault, after=after)
        if is_due:
            self.window = 0

    def _update(self):
        assert self.recorder is not None
        rate = self.loop.settings.learning_rate
        self.recorder.updated(loss=self.loop.learn(self.digest), grad_norm=0.5, lr={"all": rate})

    @precondition(lambda self: self.may_train())
    @rule(fault=faults)
    def skip(self, fault):
        self.consume(self.accumulation)
        after = self.totals._replace(skipped=self.totals.skipped + 1, attempts=self.totals.attempts + 1)
        self.act(lambda: self.alive.skipped("guard"), ["overflow"], fault, after=after)

    @precondition(lambda self: self.may_train())
    @rule(updates=st.integers(1, 3))
    def get_on(self, updates):
        """Train a little and save: without this, few examples come far enough to go back to something."""
        for _ in range(min(updates, self.session.target - self.totals.step)):
            self.update(None)
        if self.totals.step not in self.own:
            self.checkpoint(None)

    @precondition(lambda self: self.recorder is not None)
    @rule(fault=faults)
    def evaluate(self, fault):
        self.act(lambda: evaluate(self.alive, self.loop, complete=False), ["val"], fault)

    @precondition(lambda self: self.recorder is not None and self.totals.step not in self.own)
    @rule(fault=faults)
    def checkpoint(self, fault):
        name = f"step-{self.totals.step:08d}-s{self.session.number:02d}"
        self.act(self._checkpoint, ["train", "checkpoint"] if self.window else ["checkpoint"], fault)
        if ("rename", name) in self.fs.done:
            path = f"checkpoints/{name}"
            self.model.checkpoints[path] = ModelCheckpoint(path, self.session.number, self.totals)
            self.own.add(self.totals.step)
        self.window = 0

    def _checkpoint(self):
        assert self.recorder is not None
        with self.recorder.checkpoint("interval") as folder:
            self.loop.save(folder, self.recorder.tensor_metadata())

    # Ends.

    @precondition(lambda self: self.recorder is not None and self.totals.step < self.session.target)
    @rule(fault=faults)
    def stop(self, fault):
        self.end("stopped", fault)

    @precondition(lambda self: self.recorder is not None and self.totals.step == self.session.target)
    @rule(fault=faults)
    def finish(self, fault):
        if self.totals.step not in self.own | self.committed:
            self.checkpoint(None)
        self.act(lambda: evaluate(self.alive, self.loop, complete=True), ["val"], None)
        self.end("completed" if self.totals.step > self.session.first.step else "closed", fault)

    def end(self, status, fault) -> None:
        self.act(self._leave, ["train", "end"] if self.window else ["end"], fault)
        self.recorder = None
        last = events(self.run)[-1]
        if isinstance(last, SessionEnd):
            assert last.status == status
        self.compare_with_the_disk()

    def _leave(self):
        assert self.recorder is not None
        self.recorder.__exit__(None, None, None)

    @precondition(lambda self: self.recorder is not None)
    @rule(microbatches=st.integers(0, 2), torn=st.integers(0, 400), data=st.data())
    def die(self, microbatches, torn, data):
        """Be killed between two reports, perhaps in the middle of writing a line."""
        if self.may_train():
            self.consume(min(microbatches, self.accumulation - 1))
        assert self.recorder is not None
        self.recorder.abandon()
        self.recorder = None
        lines = (self.run / LOG).read_bytes().splitlines()
        line = data.draw(st.sampled_from(lines))
        with (self.run / LOG).open("ab") as log:
            log.write(line[: min(torn, len(line) - 1)])
        self.compare_with_the_disk()

    # Side by side.

    def may_train(self) -> bool:
        return self.recorder is not None and self.totals.step < self.session.target

    def consume(self, microbatches) -> None:
        assert self.recorder is not None
        for _ in range(microbatches):
            self.digest = consume(self.recorder, self.loop)
            self.totals = self.totals._replace(
                microbatches=self.totals.microbatches + 1,
                tokens_seen=self.totals.tokens_seen + TOKENS,
                loss_tokens=self.totals.loss_tokens + TOKENS,
            )
            self.window += 1

    def act(
        self, action: Callable[[], object], lines: list[str], fault, *, after: Totals | None = None
    ) -> int:
        """Do something that writes these lines; return how many of them the log holds, should it be killed."""
        before = self.fs.log.count(b"\n")
        if fault is not None:
            self.fs.arm(*fault)
        self.totals = after or self.totals
        is_dead = False
        try:
            action()
        except Killed:
            is_dead = True
        self.fs.disarm()
        written = self.fs.log.count(b"\n") - before
        if written and lines[0] == "start":
            self.model.sessions.append(self.session)
        self.session.lines += [Line(kind, self.totals) for kind in lines[:written]]
        assert is_dead or written == len(lines)
        if is_dead:
            assert self.recorder is not None
            self.recorder.abandon()
            self.recorder = None
        return written

    @invariant()
    def counters_are_the_model_s(self):
        if self.recorder is not None:
            counters = self.recorder.counters
            assert Totals(*[getattr(counters, name) for name in Totals._fields]) == self.totals

    def compare_with_the_disk(self) -> None:
        """Compare everything that the records say with what the model says."""
        found = events(self.run)
        assert [(KINDS[type(event).__name__], event.session, _totals(event)) for event in found] == [
            (line.kind, session.number, line.totals)
            for session in self.model.sessions
            for line in session.lines
        ]
        named = [event.file.split("/")[1] for event in found if isinstance(event, TailRecovered)]
        assert set(named) == self.model.named_tails
        assert len(named) == len(set(named))
        told = history(self.run)
        assert _totals(told.branch_counters()) == self.model.seen()
        assert _totals(told.spent()) == self.model.spent()
        assert told.target_step() == self.model.sessions[-1].target
        assert {known.path for known in told.checkpoints()} <= set(self.model.checkpoints)
        on_branch = {found.path for found in self.model.on_branch()}
        assert {known.path for known in told.checkpoints() if told.is_on_branch(known)} <= on_branch
        self.compare_latest()

    def compare_latest(self) -> None:
        if self.recorder is not None:
            return
        expected = self.model.latest()
        with RunRecorder(self.run, fs=QuickFileSystem()) as recorder:
            latest = recorder.latest_checkpoint()
        assert (latest.path if latest else None) == (expected.path if expected else None)

    def compare_superseded(self) -> None:
        start = [event for event in events(self.run) if isinstance(event, SessionStart)][-1]
        assert start.session == self.session.number
        assert {name: getattr(start.superseded, name) for name in self.superseded} == self.superseded


def _totals(counters) -> Totals:
    return Totals(*[getattr(counters, name) for name in Totals._fields])


TestRecorderMachine = RecorderMachine.TestCase
TestRecorderMachine.settings = settings(max_examples=40, stateful_step_count=25)
