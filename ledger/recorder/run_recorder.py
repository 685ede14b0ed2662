"""`RunRecorder`: the write side of a run. A training loop says what happened; the recorder keeps the account.

The recorder owns the counters, the windows, the phases, the log, run.json and the commit of checkpoints. It takes
the loop's word for what was computed and nobody's for how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType

from ledger.checkpoints import CompleteCheckpoint
from ledger.errors import LedgerError, UsageError
from ledger.recorder.active import ActiveSession
from ledger.recorder.beginning import begin_session
from ledger.recorder.endings import ending_after
from ledger.recorder.exports import export_weights
from ledger.recorder.holding import HeldRun
from ledger.recorder.phases import PhaseClock
from ledger.recorder.plan import EvaluationResult, LiveState, SessionPlan
from ledger.recorder.retention import finish_pruning, prune
from ledger.records.events import CheckpointKind, SessionStatus, SkipReason
from ledger.records.parts import Counters, Cursor, FileRef
from ledger.storage.clock import Clock
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["RunRecorder"]


class RunRecorder(HeldRun):
    """Records one training session of a run, as the only writer.

    Inside `with`, first read what the run holds (`latest_checkpoint`, `recipe_in_force`), restore the live objects,
    then `start`. From there on report each microbatch and each attempt. Leaving the block ends the session if the
    loop did not: by the counters where the loop returned, as `failed` or `interrupted` where it raised.
    """

    def __init__(
        self,
        run_dir: Path | str,
        *,
        allow_network_fs: bool = False,
        clock: Clock | None = None,
        fs: FileSystem = OS,
    ) -> None:
        super().__init__(run_dir, allow_network_fs=allow_network_fs, clock=clock, fs=fs)
        self._phases = PhaseClock(self._clock)
        self._session: ActiveSession | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the session truthfully and let go of the run."""
        try:
            if self._session is not None:
                self._end(error)
        finally:
            if self._lock is not None:
                self._lock.close()

    def abandon(self) -> None:
        """Let go of the run at once and write nothing more, as if this process had been killed here.

        The session stays without an end, which is the truth about it; the next start says so.
        """
        if self._session is not None:
            self._session.writer.abandon()
            self._session.ended = True
        if self._lock is not None:
            self._lock.abandon()

    def _end(self, error: BaseException | None) -> None:
        session = self._active
        try:
            if session.ended or session.tearing.is_torn:
                return  # broken off inside a report, the account says nothing true: no end is the truth
            if error is None:
                _end_by_counters(session)
            else:
                _end_after(session, error)
        except LedgerError as second:
            if error is None:
                raise
            error.add_note(f"and the session's end could not be recorded: {second}")
        finally:
            session.close()

    # The session.

    def start(self, plan: SessionPlan, *, capture: Callable[[], LiveState]) -> None:
        """Begin a session: check the plan against the run, then write its first events and run.json.

        Everything must be restored into the live objects before this call, and no data drawn: `capture` is called
        here, with every checkpoint and, where the recipe asks for evidence, with every train event.

        Raises:
            UsageError: the plan makes no sense for this run.
            RefusedError: identity, data or geometry differ from the run's, or the target was lowered.
            VerificationError: the live objects are not in the state that the parent checkpoint holds.
            StorageError: the system refused.
        """
        if self._session is not None:
            raise UsageError("the session has started already", expected="one `start` for each recorder")
        self._session = begin_session(
            self._run,
            plan,
            lock=self._held,
            capture=capture,
            phases=self._phases,
            clock=self._clock,
            fs=self._fs,
        )
        finish_pruning(self._run, fs=self._fs)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._active.run_id

    @property
    def session(self) -> int:
        """The number of this session, counted from 1."""
        return self._active.number

    @property
    def counters(self) -> Counters:
        """The six running totals."""
        return self._active.account.counters

    @property
    def step(self) -> int:
        """Successful updates so far, over the whole branch."""
        return self._active.account.step

    @property
    def target_step(self) -> int:
        """The step at which the run is complete."""
        return self._active.target_step

    @property
    def cursor(self) -> Cursor:
        """Where each source stands behind the last consumed microbatch."""
        return self._active.account.cursor

    @property
    def consecutive_skips(self) -> int:
        """Attempts skipped since the last update."""
        return self._active.account.consecutive_skips

    @property
    def checkpoint_here(self) -> CompleteCheckpoint | None:
        """The checkpoint that already holds this step: this session's, or the parent where no update was made."""
        return self._active.checkpoint_here

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Count the time inside the block for one phase; outside of any, time counts as `train`."""
        return self._phases.within(name)

    def microbatch(
        self, *, tokens: int, digest: bytes, cursor: Cursor, loss_tokens: int | None = None
    ) -> None:
        """Report that one microbatch was processed: forward and backward are done on all replicas.

        Args:
            tokens: target positions it held, on all replicas together.
            digest: its 32-byte digest (`ledger.dataset.digest`).
            cursor: where each source stands behind it.
            loss_tokens: positions that counted in the loss; all of them when omitted.
        """
        self._active.microbatch(tokens=tokens, digest=digest, cursor=cursor, loss_tokens=loss_tokens)

    def updated(
        self,
        *,
        loss: float,
        grad_norm: float,
        lr: Mapping[str, float],
        loss_scale: float | None = None,
        growth_tracker: int | None = None,
        diagnostics: Mapping[str, float] | None = None,
        memory: Mapping[str, float] | None = None,
    ) -> None:
        """Report that an update succeeded; writes the train event where the logging interval says so.

        Args:
            loss: mean over the window's loss tokens, in nats.
            grad_norm: unscaled, before clipping.
            lr: rate of each optimizer group in this update.
            loss_scale, growth_tracker: of the gradient scaler after this update; None where there is none.
            diagnostics: numbers of the loop's own.
            memory: peaks in bytes beside that of the process, which the recorder measures itself.
        """
        self._active.updated(
            loss=loss,
            grad_norm=grad_norm,
            lr=lr,
            scaler=(loss_scale, growth_tracker),
            diagnostics=diagnostics or {},
            memory=memory or {},
        )

    def skipped(
        self,
        reason: SkipReason,
        *,
        loss: float | None = None,
        grad_norm: float | None = None,
        loss_scale: tuple[float, float] | None = None,
        growth_tracker: int | None = None,
    ) -> None:
        """Report that an attempt was skipped after its data was processed; `loss_scale` is (before, after)."""
        self._active.skipped(
            reason, loss=loss, grad_norm=grad_norm, loss_scale=loss_scale, growth_tracker=growth_tracker
        )

    def evaluation(
        self, result: EvaluationResult, *, of: CompleteCheckpoint | None = None, keep: bool = False
    ) -> FileRef | None:
        """Report a measurement on held-out text; `keep` also writes it to `evaluations/`, naming what was measured.

        Its seconds are those spent in phase `evaluate` since the last report.
        """
        return self._active.evaluation(result, of=of, keep=keep)

    @contextmanager
    def checkpoint(self, kind: CheckpointKind) -> Iterator[Path]:
        """Commit a checkpoint: yields a folder to write tensors into, and does everything else at its end.

        Taken between accumulation windows only, and at most once per step and session (see `checkpoint_here`).

        Raises:
            UsageError: inside an accumulation window, or this session already holds one at this step.
            StorageError: the system refused; no checkpoint appeared and no event speaks of one.
        """
        with self._active.checkpoint(kind) as folder:
            yield folder
        if (committed := self._active.checkpoint_here) is not None:
            self._run.checkpoints.append(committed)

    @contextmanager
    def export(self) -> Iterator[Path]:
        """Write weights alone: yields a folder to write them into, and does everything else at its end.

        Raises:
            UsageError: inside an accumulation window, or nothing was written.
            RefusedError: this session exported this step before.
            StorageError: the system refused; no export appeared and no event speaks of one.
        """
        with export_weights(self._active, fs=self._fs) as folder:
            yield folder

    def prune(self, *, keep_last: int) -> list[str]:
        """Remove the checkpoints that retention has no use for and return their paths, oldest first.

        Of those taken by interval or signal the newest `keep_last` of the current branch stay. Never removed: a
        milestone, a final, the branch's latest and its best by validation loss, the parent of this session.

        Raises:
            UsageError: less than one is to stay.
            StorageError: the system refused; a checkpoint that the log calls pruned is removed by the next start.
        """
        with self._phases.within("report"):
            return prune(self._run, self._active, keep_last=keep_last, fs=self._fs)

    def tensor_metadata(self) -> dict[str, str]:
        """Return the metadata to store in each safetensors file: step, session and seq, as one JSON string."""
        return self._active.tensor_metadata()

    def data_verified(self, *, shard: str, sha256: str, seconds: float) -> None:
        """Report that a file of the data was rehashed while training and found as recorded.

        Like every report it comes from the thread that started the session, also where another one did the work.
        """
        self._active.data_verified(shard=shard, sha256=sha256, seconds=seconds)

    def note(self, text: str) -> None:
        """Write free text into the log."""
        self._active.note(text)

    def end(self, status: SessionStatus | None = None, *, reason: str = "") -> SessionStatus:
        """End the session. Without a status the counters decide.

        They say `completed` at the target (`closed` when this session made no update there), else `stopped`.
        Returns the status that was written.
        """
        return self._active.end(status=status, reason=reason)

    @property
    def _active(self) -> ActiveSession:
        if self._session is None:
            raise UsageError("no session has started", expected="`start` before anything is reported")
        return self._session


def _end_by_counters(session: ActiveSession) -> None:
    """End a session whose loop returned; where it returned in the middle of an update, that is the failure."""
    try:
        session.end()
    except UsageError as misuse:
        session.end(
            status="failed", reason="the training loop returned too early or too late", error=str(misuse)
        )
        raise


def _end_after(session: ActiveSession, error: BaseException) -> None:
    ending = ending_after(error, is_inside_window=session.account.outstanding > 0)
    session.end(status=ending.status, reason=ending.reason, error=ending.error)
