"""A session under way: every report of the loop becomes counters, a window, and events."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ledger.checkpoints import CompleteCheckpoint
from ledger.errors import UsageError
from ledger.recorder.account import Account
from ledger.recorder.commit import (
    Captured,
    commit_checkpoint,
    discard_checkpoint_folder,
    open_checkpoint_folder,
)
from ledger.recorder.endings import default_reason
from ledger.recorder.evaluations import evaluation_document, keep_evaluation
from ledger.recorder.phases import PhaseClock
from ledger.recorder.plan import EvaluationResult, LiveState, SessionDigests, SessionPlan
from ledger.recorder.starting import Beginning
from ledger.recorder.tearing import Tearing
from ledger.recorder.window import OpenWindow, Update
from ledger.recorder.writer import EventWriter
from ledger.records.events import (
    Checkpoint,
    CheckpointKind,
    DataVerified,
    Note,
    Overflow,
    ScaleChange,
    SessionEnd,
    SessionStatus,
    SkipReason,
    Train,
    Validation,
)
from ledger.records.fields import as_measurement, as_measurements
from ledger.records.parts import COUNTER_NAMES, At, Cursor, FileRef, StateDigests
from ledger.storage.filesystem import FileSystem
from ledger.storage.processes import peak_rss_bytes

__all__ = ["ActiveSession"]

_MEASURED_PHASES = ("train", "data", "evaluate", "checkpoint")


class ActiveSession:
    """The session that a recorder started; `RunRecorder` documents what each report means."""

    def __init__(
        self,
        *,
        run_id: str,
        plan: SessionPlan,
        beginning: Beginning,
        account: Account,
        writer: EventWriter,
        phases: PhaseClock,
        capture: Callable[[], LiveState],
        digests: SessionDigests,
        fs: FileSystem,
    ) -> None:
        self.run_id = run_id
        self.plan = plan
        self.number = beginning.session
        self.target_step = beginning.target_step
        self.account = account
        self.writer = writer
        self.digests = digests
        self.ended = False
        self.tearing = Tearing()
        self._beginning = beginning
        self.phases = phases
        self.capture = capture
        self._fs = fs
        self._window = OpenWindow()
        self._taken = dict.fromkeys(_MEASURED_PHASES, 0.0)
        self._committed = plan.parent if plan.mode is None else None
        sections = beginning.sections
        self._interval = sections.logging.interval if sections.logging else 1
        self._has_evidence = bool(sections.logging and sections.logging.evidence)
        self._clip_norm = sections.optimizer.clip_norm if sections.optimizer else None
        self._scaler = beginning.loss_scale
        self._memory: dict[str, float] = {}

    def close(self) -> None:
        """Close the log."""
        self.writer.close()

    # Work.

    def microbatch(self, *, tokens: int, digest: bytes, cursor: Cursor, loss_tokens: int | None) -> None:
        """Count one processed microbatch."""
        self.require_open()
        counted = tokens if loss_tokens is None else loss_tokens
        self._check_microbatch(tokens=tokens, loss_tokens=counted, digest=digest)
        with self.tearing.guarded():
            self.account.microbatch(tokens=tokens, loss_tokens=counted, digest=digest, cursor=cursor)
            self._window.add_microbatch(tokens=tokens, loss_tokens=counted, digest=digest)

    def _check_microbatch(self, *, tokens: int, loss_tokens: int, digest: bytes) -> None:
        if tokens != self.plan.tokens_per_microbatch:
            raise UsageError(
                f"a microbatch of {tokens} tokens was reported",
                expected=f"{self.plan.tokens_per_microbatch}, as the session's plan says",
            )
        if not 0 <= loss_tokens <= tokens:
            raise UsageError(
                f"{loss_tokens} of {tokens} tokens counted in the loss", expected="between 0 and all"
            )
        if len(digest) != 32:
            raise UsageError(
                f"a digest of {len(digest)} bytes was reported", expected="the 32 bytes of a SHA-256"
            )

    def updated(
        self,
        *,
        loss: float,
        grad_norm: float,
        lr: Mapping[str, float],
        scaler: tuple[float | None, int | None],
        diagnostics: Mapping[str, float],
        memory: Mapping[str, float],
    ) -> None:
        """Count an applied update; write the train event at absolute multiples of the logging interval."""
        self.require_open()
        loss, grad_norm, lr, memory = float(loss), float(grad_norm), dict(lr), dict(memory)
        with self.tearing.guarded():
            loss_tokens = self.account.success()
            self._scaler, self._memory = scaler, memory
            self._window.add_update(Update(loss=loss, grad_norm=grad_norm, lr=lr, loss_tokens=loss_tokens))
        if self.account.step % self._interval == 0:
            self._write_train(diagnostics)

    def skipped(
        self,
        reason: SkipReason,
        *,
        loss: float | None,
        grad_norm: float | None,
        loss_scale: tuple[float, float] | None,
        growth_tracker: int | None,
    ) -> None:
        """Count a skipped attempt and write its overflow event."""
        self.require_open()
        with self.tearing.guarded(), self.phases.within("report"):
            self.account.skip()
            self._window.add_skip()
            if loss_scale is not None:
                self._scaler = (loss_scale[1], growth_tracker)
            self.writer.write(
                Overflow,
                reason=reason,
                loss=None if loss is None else as_measurement(loss),
                grad_norm=None if grad_norm is None else as_measurement(grad_norm),
                loss_scale=None if loss_scale is None else ScaleChange(*map(as_measurement, loss_scale)),
                growth_tracker=growth_tracker,
                consecutive=self.account.consecutive_skips,
            )

    def _write_train(self, diagnostics: Mapping[str, float] | None = None) -> None:
        window = self._window
        totals = window.totals(seconds=self.take("train"), data_seconds=self.take("data"))
        scale, growth_tracker = self._scaler
        with self.phases.within("report"):
            state = self._state(self.capture()) if self._has_evidence else None
            with self.tearing.guarded():
                self.writer.write(
                    Train,
                    window=totals,
                    **window.measurements(clip_norm=self._clip_norm),
                    loss_scale=None if scale is None else as_measurement(scale),
                    growth_tracker=growth_tracker,
                    memory=as_measurements({"peak_rss_bytes": peak_rss_bytes(), **self._memory}),
                    cursor=self.account.cursor,
                    batches=window.batches,
                    data_chain=self.account.data_chain,
                    state=state,
                    diagnostics=as_measurements(diagnostics or {}),
                )
                self._window = OpenWindow()

    def _write_outstanding(self) -> None:
        if self._window.microbatches:
            self._write_train()

    def take(self, phase: str) -> float:
        """Return the seconds of a phase that no event accounts for yet; an event of the caller's now does."""
        seconds = self.phases.take(phase)
        self._taken[phase] += seconds
        return seconds

    def _state(self, live: LiveState) -> StateDigests:
        return live.digests(self.account.cursor)

    # Measurements on held-out text.

    def evaluation(
        self, result: EvaluationResult, *, of: CompleteCheckpoint | None, keep: bool
    ) -> FileRef | None:
        """Write a `val` event and, where it is kept, the evaluation's own file before it."""
        self.require_open()
        seconds = self.take("evaluate")
        with self.phases.within("report"), self.tearing.guarded():
            kept = self._keep(result, of) if keep else None
            self.writer.write(
                Validation,
                split=result.split,
                data_sha256=result.data_sha256,
                loss=as_measurement(result.loss),
                tokens=result.tokens,
                batches=result.batches,
                complete=result.complete,
                seconds=seconds,
                metrics=result.recorded_metrics(),
                rng_before=result.rng_before,
                rng_after=result.rng_after,
                evaluation=kept,
            )
        return kept

    def _keep(self, result: EvaluationResult, of: CompleteCheckpoint | None) -> FileRef:
        folder = self.writer.locate_folder()
        document = evaluation_document(
            result,
            run_id=self.run_id,
            step=self.account.step,
            of=of,
            state=self._state(self.capture()) if of is None else None,
            environment_sha256=self.digests.environment_sha256,
        )
        return keep_evaluation(folder, document, session=self.number, fs=self._fs)

    # Checkpoints.

    @property
    def checkpoint_here(self) -> CompleteCheckpoint | None:
        """The checkpoint that holds this step already, this session's or its parent."""
        found = self._committed
        return found if found is not None and found.manifest.counters.step == self.account.step else None

    @contextmanager
    def checkpoint(self, kind: CheckpointKind) -> Iterator[Path]:
        """Yield a folder for the loop's files; commit it and write its event when the block ends."""
        self.require_open()
        self._require_checkpoint_possible()
        self._write_outstanding()
        with self.phases.within("checkpoint"):
            self.writer.sync()
            captured = self._captured(kind)
            folder = open_checkpoint_folder(self.writer.locate_folder(), captured, fs=self._fs)
            try:
                yield folder
                before_commit = self.phases.elapsed
                self.writer.require_sole_writer()
                checkpoint = commit_checkpoint(folder, captured, fs=self._fs)
            except BaseException:
                discard_checkpoint_folder(folder, fs=self._fs)
                raise
            write_seconds = self.phases.elapsed - before_commit
        self._committed = checkpoint
        self._write_checkpoint(checkpoint, captured, write_seconds=write_seconds)

    def _require_checkpoint_possible(self) -> None:
        if self.account.outstanding:
            raise UsageError(
                f"a checkpoint was asked for after {self.account.outstanding} microbatches of a window",
                expected="one between accumulation windows, after `updated` or `skipped`",
            )
        here = self.checkpoint_here
        if here is not None and here.manifest.session == self.number:
            raise UsageError(f"session {self.number} holds a checkpoint at step {self.account.step} already")

    def _captured(self, kind: CheckpointKind) -> Captured:
        live = self.capture()
        return Captured(
            run_id=self.run_id,
            session=self.number,
            kind=kind,
            counters=self.account.counters,
            cursor=self.account.cursor,
            data_chain=self.account.data_chain,
            consecutive_skips=self.account.consecutive_skips,
            live=live,
            state=self._state(live),
            digests=self.digests,
            data=self.plan.data,
            log=self.writer.head,
        )

    def _write_checkpoint(
        self, checkpoint: CompleteCheckpoint, captured: Captured, *, write_seconds: float
    ) -> None:
        seconds = self.take("checkpoint")
        counters = {name: getattr(captured.counters, name) for name in COUNTER_NAMES}
        with self.phases.within("report"):
            self.writer.write(
                Checkpoint,
                path=checkpoint.path,
                kind=captured.kind,
                at=At(**counters, seq=captured.log.seq),
                manifest_sha256=checkpoint.manifest_sha256,
                bytes=sum(entry.bytes for entry in checkpoint.manifest.files.values()),
                seconds=seconds,
                write_seconds=min(write_seconds, seconds),
                state=captured.state,
            )

    def tensor_metadata(self) -> dict[str, str]:
        """Return step, session and seq as one JSON string under one key."""
        # Several metadata keys would be written in random order, and the file's bytes would not repeat.
        marks = {"step": self.account.step, "session": self.number, "seq": self.writer.head.seq}
        return {"ledger": json.dumps(marks, separators=(",", ":"))}

    # What else happened.

    def data_verified(self, *, shard: str, sha256: str, seconds: float) -> None:
        """Write a `data_verified` event."""
        self.require_open()
        self.writer.require_own_thread()
        with self.phases.within("report"):
            self.writer.write(DataVerified, shard=shard, sha256=sha256, seconds=seconds)

    def note(self, text: str) -> None:
        """Write free text into the log."""
        self.require_open()
        self.writer.write(Note, text=text)

    # The end.

    def end(
        self, *, status: SessionStatus | None = None, reason: str = "", error: str | None = None
    ) -> SessionStatus:
        """Write what is outstanding and the session's end; return its status."""
        self.require_open()
        decided = self._status_by_counters() if status is None else status
        self._check_status(decided)
        self.writer.require_sole_writer()
        self._write_outstanding()
        self.ended = True
        phases = self._final_phases(exact=decided in ("completed", "closed"))
        with self.phases.within("report"):
            self.writer.write(
                SessionEnd,
                status=decided,
                reason=reason or default_reason(decided),
                target_step=self.target_step,
                state=self._state(self.capture()) if self._keeps_no_weights() else None,
                phases=phases,
                error=error,
            )
            self.writer.sync()
        return decided

    def _status_by_counters(self) -> SessionStatus:
        if self.account.step < self.target_step:
            return "stopped"
        return "completed" if self.account.step > self._beginning.counters.step else "closed"

    def _check_status(self, status: SessionStatus) -> None:
        if status in ("completed", "closed") and self.account.step != self.target_step:
            raise UsageError(
                f"the session cannot end {status!r} at step {self.account.step}",
                expected=f"the target step {self.target_step} to be reached",
            )
        if status not in ("interrupted", "failed") and self.account.outstanding:
            raise UsageError(
                f"the session cannot end {status!r} inside an accumulation window",
                expected="`updated` or `skipped` after its last microbatch",
            )

    def _final_phases(self, *, exact: bool) -> dict[str, float]:
        """Return the seconds of each phase; what no event accounts for counts as `report` in a session that is done."""
        left = self.phases.totals()
        phases = {name: left[name] + self._taken.get(name, 0.0) for name in left}
        if exact:
            for name in _MEASURED_PHASES:
                phases[name] = self._taken[name]
                phases["report"] += left[name]
        return phases

    def _keeps_no_weights(self) -> bool:
        policy = self._beginning.sections.checkpoint
        return policy is not None and policy.policy == "none"

    def require_open(self) -> None:
        """Refuse a report after the end, or from a forked process."""
        if self.ended:
            raise UsageError("the session has ended; nothing more can be reported")
        self.writer.require_own_process()
