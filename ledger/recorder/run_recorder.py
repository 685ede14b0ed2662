"""`RunRecorder`: the write side of a run. A training loop says what happened; the recorder keeps the account.

The recorder owns the counters, the windows, the phases, the log, run.json and the commit of checkpoints. It takes
the loop's word for what was computed and nobody's for how often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from ledger.checkpoints import CompleteCheckpoint
from ledger.errors import LedgerError, UsageError
from ledger.recorder.active import ActiveSession
from ledger.recorder.beginning import begin_session
from ledger.recorder.opening import OpenedRun, acquire_lock, open_run, read_recipe
from ledger.recorder.phases import PhaseClock
from ledger.recorder.plan import EvaluationResult, LiveState, SessionPlan
from ledger.records.documents import Recipe
from ledger.records.events import CheckpointKind, SessionStatus, SkipReason
from ledger.records.parts import Counters, Cursor, FileRef
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.lock import RunLock
from ledger.storage.mounts import refuse_network_file_system

__all__ = ["RunRecorder"]


class RunRecorder:
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
        self.run_dir = Path(run_dir)
        self._allow_network_fs = allow_network_fs
        self._clock = clock or SystemClock()
        self._fs = fs
        self._phases = PhaseClock(self._clock)
        self._lock: RunLock | None = None
        self._opened: OpenedRun | None = None
        self._session: ActiveSession | None = None

    def __enter__(self) -> Self:
        """Take the writer's lock and read the run's history.

        Raises:
            UsageError: the folder holds other things than a run, or a new run would lie where names that differ
                only by case are the same.
            UnsafeError: it lies on a network file system and nobody asked for that.
            LockedError: another writer holds the run.
            VerificationError, EvidenceMissingError: the log is damaged or incomplete; nothing was written.
        """
        refuse_network_file_system(self.run_dir, is_allowed=self._allow_network_fs)
        self._lock = acquire_lock(self.run_dir, clock=self._clock, fs=self._fs)
        try:
            self._opened = open_run(self.run_dir, fs=self._fs)
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the session truthfully and let go of the run."""
        try:
            if self._session is not None:
                self._end_after(error)
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

    def _end_after(self, error: BaseException | None) -> None:
        session = self._active
        try:
            if session.ended:
                return
            if error is None:
                _end_by_counters(session)
            elif isinstance(error, KeyboardInterrupt):
                session.end(status="interrupted", reason="keyboard interrupt")
            else:
                session.end(status="failed", reason="the training loop raised", error=_describe(error))
        except LedgerError as second:
            if error is None:
                raise
            error.add_note(f"and the session's end could not be recorded: {second}")
        finally:
            session.close()

    # What the run holds.

    @property
    def has_sessions(self) -> bool:
        """Whether the run holds a session already."""
        return bool(self._run.history.sessions)

    @property
    def target_in_force(self) -> int | None:
        """The target step in force; None in a run without sessions."""
        return self._run.history.target_step()

    def latest_checkpoint(self) -> CompleteCheckpoint | None:
        """Return the complete checkpoint furthest along the current branch, with or without an event.

        Raises:
            EvidenceMissingError: one lay further and vanished: going on from an older one is not done silently.
            VerificationError: its manifest is not the one that its event names.
        """
        return self._run.latest()

    def is_at_end(self, checkpoint: CompleteCheckpoint) -> bool:
        """Tell whether a checkpoint stands where the current branch ends, so that going on from it repeats nothing."""
        return self._run.is_at_end(checkpoint)

    def checkpoint_named(self, folder: Path | str) -> CompleteCheckpoint:
        """Return the complete checkpoint in `folder`, which may lie on a superseded branch.

        Raises:
            UsageError: it is not a complete checkpoint of this run.
        """
        wanted = Path(folder).resolve()
        for found in self._run.checkpoints:
            if found.folder.resolve() == wanted:
                return found
        raise UsageError(
            "is not a complete checkpoint of this run", path=folder, expected=f"one in {self.run_dir}"
        )

    def recipe_of(self, checkpoint: CompleteCheckpoint | None) -> Recipe | None:
        """Return the recipe that `checkpoint` was made under; without one, the first session's (None: no session)."""
        if checkpoint is not None:
            return read_recipe(self.run_dir, checkpoint.manifest.recipe_sha256, fs=self._fs)
        sessions = self._run.history.sessions
        return read_recipe(self.run_dir, sessions[0].start.recipe_sha256, fs=self._fs) if sessions else None

    def recipe_in_force(self) -> Recipe | None:
        """Return the last session's recipe; None in a run without sessions."""
        sessions = self._run.history.sessions
        return read_recipe(self.run_dir, sessions[-1].start.recipe_sha256, fs=self._fs) if sessions else None

    @property
    def is_completed(self) -> bool:
        """Whether the last session ended `completed` or `closed` at the target in force."""
        sessions = self._run.history.sessions
        return bool(
            sessions
            and sessions[-1].end is not None
            and sessions[-1].end.status in ("completed", "closed")
            and sessions[-1].last.step == self.target_in_force
        )

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
    def _run(self) -> OpenedRun:
        if self._opened is None:
            raise UsageError("the recorder is not open", expected="`with RunRecorder(folder) as recorder:`")
        return self._opened

    @property
    def _held(self) -> RunLock:
        if self._lock is None:
            raise UsageError("the recorder is not open", expected="`with RunRecorder(folder) as recorder:`")
        return self._lock

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


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:2_000]
