"""`summarize`: what the latest session did, the earlier ones apart, with every window validated on the way."""

from __future__ import annotations

import os
from typing import ClassVar, Literal

from pydantic import Field

from ledger import __version__
from ledger.audit.passing import (
    Outcome,
    audit_stream,
    counter_checkers,
    form_checkers,
    open_stream,
    outcome,
)
from ledger.audit.stream import Checker, Stream
from ledger.audit.subject import find_run
from ledger.errors import UsageError
from ledger.history import Session
from ledger.records.base import Document, Record
from ledger.records.documents import Finding, Severity
from ledger.records.events import Checkpoint, Overflow, SessionStart, Train, Validation
from ledger.records.fields import Count, Json, Measurement
from ledger.records.parts import Counters

__all__ = ["BestLoss", "SessionSummary", "Summary", "summarize"]


class SessionSummary(Record):
    """One session in numbers. Rates are tokens per second."""

    session: int
    start: str
    started: str
    parent: str | None = Field(description="The checkpoint it started from, or null.")
    parent_session: int | None = Field(description="The session of this run that checkpoint is of, or null.")
    on_branch_up_to_step: Count | None = Field(
        description="How far it lies on the current branch; null where nothing of it does."
    )
    kept_checkpoints: list[Count] = Field(
        description="Steps of its checkpoints that retention did not remove; of very many an even choice."
    )
    status: str = Field(description="As its session_end says; `no end` without one.")
    reason: str | None
    first: Counters = Field(description="Totals at its start.")
    last: Counters = Field(description="Totals on its last line.")
    updates: Count
    attempts: Count
    skipped: Count
    microbatches: Count
    tokens: Count
    loss_first: Measurement | None = Field(description="Mean loss of its first window with an update.")
    loss_last: Measurement | None
    grad_norm_last: Measurement | None
    grad_norm_max: Measurement | None = Field(description="Greatest norm before clipping.")
    clipped: Count
    nonfinite: Count = Field(description="Non-finite losses and norms, those of skipped attempts included.")
    evaluations: list[dict[str, Json]] = Field(
        description="split, step, loss, complete; the latest of each split."
    )
    checkpoints: Count
    elapsed_seconds: float
    training_seconds: float = Field(description="Sum of the windows' training seconds.")
    data_seconds: float = Field(description="Sum of the windows' seconds of waiting for data.")
    training_tokens_per_second: float | None = Field(description="Tokens by training seconds alone.")
    wall_clock_tokens_per_second: float | None = Field(
        description="Tokens by elapsed seconds of this session."
    )


class BestLoss(Record):
    """The lowest validation loss of the current branch."""

    split: str
    loss: float
    step: Count
    tokens: Count = Field(description="Target positions measured; only losses over as many are compared.")
    complete: bool
    checkpoint: str | None = Field(
        description="Path of the checkpoint of that moment; null where none is kept."
    )


class Summary(Document):
    """What `ledger summarize --json` prints: the latest session, and the earlier ones apart."""

    SCHEMA: ClassVar[str] = "ledger.summary"

    schema_name: Literal["ledger.summary"] = Field("ledger.summary", alias="schema")
    version: Literal[1] = 1
    tool_version: str
    run_id: str | None
    name: str | None
    target_step: int | None
    is_live: bool = Field(description="Whether a writer holds the run: the log may grow while it is read.")
    verdict: Literal["passed", "failed", "incomplete"]
    required_end: int | None = Field(description="The step at which a session_end was required, or null.")
    latest: SessionSummary | None
    earlier: list[SessionSummary]
    best: BestLoss | None = Field(description="Null without a finite evaluation on the current branch.")
    findings: list[Finding]
    finding_counts: dict[Severity, Count]
    rule_counts: dict[str, dict[Severity, Count]]


def summarize(run_dir: str | os.PathLike[str], *, require_end: int | None = None) -> Summary:
    """Return what the latest session did; form and counters of the whole log are checked (LG1, LG2).

    A latest session without an end cannot be judged: the verdict is incomplete. With `require_end` it must have ended
    at exactly that step, else the verdict is failed. How it ended is told and not judged, and nothing is said about
    checkpoints, data or several sessions together: that is what `reconcile` is for.

    Raises:
        UsageError: the path is not a run's folder, or the step is negative.
        InvalidDocumentError, NewerVersionError, UnsafeError, StorageError: as `reconcile`.
    """
    if require_end is not None and require_end < 0:
        raise UsageError(f"step {require_end} is negative", expected="a successful step")
    stream, _ = open_stream(find_run(run_dir))
    stream.keeps_rows = False
    tally = TallyChecker(stream)
    audit_stream(stream, [*form_checkers(stream), *counter_checkers(stream), tally])
    sessions = tally.summaries()
    verdict = outcome(stream.findings, is_live=stream.is_live)
    if verdict != "failed":
        verdict = _judge_end(sessions, require_end, otherwise=verdict)
    facts = stream.history.facts
    return Summary(
        tool_version=__version__,
        run_id=stream.history.run_id,
        name=None if facts is None else facts.name,
        target_step=stream.history.target_step(),
        is_live=stream.is_live,
        verdict=verdict,
        required_end=require_end,
        latest=sessions[-1] if sessions else None,
        earlier=sessions[:-1],
        best=_best_loss(stream),
        findings=stream.findings.kept,
        finding_counts=stream.findings.counts,
        rule_counts=stream.findings.rule_counts,
    )


def _judge_end(sessions: list[SessionSummary], step: int | None, *, otherwise: Outcome) -> Outcome:
    if not sessions or sessions[-1].status == "no end":
        return "incomplete"
    return otherwise if step in (None, sessions[-1].last.step) else "failed"


def _best_loss(stream: Stream) -> BestLoss | None:
    """Return the best of the branch; a checkpoint counts as kept where its folder still is."""
    best = stream.history.best()
    if best is None or not isinstance(best.evaluation.loss, float | int):
        return None
    found, checkpoint = best.evaluation, best.checkpoint
    is_there = checkpoint is not None and checkpoint.path in stream.files.complete_checkpoints
    return BestLoss(
        split=found.split,
        loss=float(found.loss),
        step=found.step,
        tokens=found.tokens,
        complete=found.complete,
        checkpoint=checkpoint.path if checkpoint is not None and is_there else None,
    )


class TallyChecker(Checker):
    """Adds up each session; it finds nothing."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.entries: list[_Tally] = []

    def on_session_start(self, event: SessionStart) -> None:
        """Open an entry."""
        self.entries.append(_Tally(event))

    def on_train(self, event: Train) -> None:
        """Add a window."""
        self.entries[-1].add_train(event)

    def on_overflow(self, event: Overflow) -> None:
        """Count what was non-finite in a skipped attempt."""
        self.entries[-1].nonfinite += isinstance(event.loss, str) + isinstance(event.grad_norm, str)

    def on_val(self, event: Validation) -> None:
        """Keep the latest evaluation of each split."""
        self.entries[-1].evaluations[event.split] = event

    def on_checkpoint(self, event: Checkpoint) -> None:
        """Count a checkpoint."""
        self.entries[-1].checkpoints += 1
        del event

    def summaries(self) -> list[SessionSummary]:
        """Return what was added up, each session with how it lies in the run's history."""
        history = self.stream.history
        ends = {segment.session.number: segment.end.step for segment in history.branch()}
        return [
            entry.summary(session, ends.get(session.number), kept=history.kept_steps(session))
            for entry, session in zip(self.entries, history.sessions, strict=True)
        ]


class _Tally:
    """The running sums of one session."""

    def __init__(self, start: SessionStart) -> None:
        self.start = start
        self.seconds = self.data_seconds = 0.0
        self.window_tokens = 0
        self.clipped = self.nonfinite = self.checkpoints = 0
        self.first_loss: Measurement | None = None
        self.last_train: Train | None = None
        self.greatest_norm: float | None = None
        self.evaluations: dict[str, Validation] = {}

    def add_train(self, event: Train) -> None:
        """Add one window."""
        window = event.window
        self.seconds += window.seconds
        self.data_seconds += window.data_seconds
        self.window_tokens += window.tokens
        self.clipped += event.clipped
        if isinstance(event.loss, str) or isinstance(event.grad_norm, str):
            self.nonfinite += isinstance(event.loss, str) + isinstance(event.grad_norm, str)
        if not window.updates:
            return
        self.last_train = event
        if self.first_loss is None:
            self.first_loss = event.loss
        norm = event.grad_norm_max
        if isinstance(norm, float) and (self.greatest_norm is None or norm >= self.greatest_norm):
            self.greatest_norm = norm

    def summary(self, session: Session, branch_end: int | None, *, kept: list[int]) -> SessionSummary:
        """Return the entry as it is shown."""
        first, last, elapsed, end = session.first, session.last, session.latest.elapsed, session.end
        tokens = max(0, last.tokens_seen - first.tokens_seen)
        train = self.last_train
        return SessionSummary(
            session=self.start.session,
            start=self.start.start,
            started=self.start.time,
            parent=None if self.start.parent is None else self.start.parent.checkpoint,
            parent_session=session.parent_session,
            on_branch_up_to_step=branch_end,
            kept_checkpoints=kept,
            status="no end" if end is None else end.status,
            reason=None if end is None else end.reason,
            first=first,
            last=last,
            updates=max(0, last.step - first.step),
            attempts=max(0, last.attempts - first.attempts),
            skipped=max(0, last.skipped - first.skipped),
            microbatches=max(0, last.microbatches - first.microbatches),
            tokens=tokens,
            loss_first=self.first_loss,
            loss_last=None if train is None else train.loss_last,
            grad_norm_last=None if train is None else train.grad_norm,
            grad_norm_max=self.greatest_norm,
            clipped=self.clipped,
            nonfinite=self.nonfinite,
            evaluations=[
                {"split": split, "step": found.step, "loss": found.loss, "complete": found.complete}
                for split, found in sorted(self.evaluations.items())
            ],
            checkpoints=self.checkpoints,
            elapsed_seconds=elapsed,
            training_seconds=self.seconds,
            data_seconds=self.data_seconds,
            training_tokens_per_second=_rate(self.window_tokens, self.seconds),
            wall_clock_tokens_per_second=_rate(tokens, elapsed),
        )


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if seconds > 0 else None
