"""Following a run while it goes on: its log is read from where reading stopped, and checked on the way.

Only form and counters are checked (LG1, LG2), as far as the log alone decides them; what needs the whole history,
checkpoints or data is for `reconcile` to say.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from ledger.audit.account import status_of
from ledger.audit.passing import counter_checkers, form_checkers, open_stream, refuse_newer
from ledger.audit.series import Point, Series
from ledger.audit.stream import Checker, Feed, Stream
from ledger.errors import EvidenceMissingError
from ledger.records.documents import Finding, Severity
from ledger.records.events import Checkpoint, Overflow, SessionStart, Train, Validation
from ledger.records.fields import Measurement
from ledger.records.layout import LOG
from ledger.storage.lock import lock_state
from ledger.storage.log_reader import FileIdentity, LogLine, read_log

__all__ = ["RunFollower", "RunView"]

RECENT: Final = 50
"""Train events from which the present rates are taken."""
LINES_AT_ONCE: Final = 20_000
KEPT_LOSSES: Final = 120
SHOWN_FINDINGS: Final = 3
FINISHED: Final = frozenset({"completed", "closed"})


@dataclass(frozen=True, kw_only=True)
class RunView:
    """A run as it stands. Rates are tokens per second, of the latest train events."""

    run_id: str | None
    name: str | None
    status: str
    """Derived from evidence, as `reconcile` derives it."""
    evidence: str
    session: int | None
    step: int
    target_step: int | None
    attempts: int
    skipped: int
    last_skip: str | None
    """Reason of the last skipped attempt."""
    loss: Measurement | None
    losses: list[float]
    """Along the current branch, extremes kept."""
    training_rate: float | None
    wall_rate: float | None
    seconds_left: float | None
    """To the target at the present rate of steps; null where it cannot be told or the session ended."""
    checkpoint: str | None
    checkpoint_step: int | None
    evaluation: str | None
    """Split of the last evaluation."""
    evaluation_loss: Measurement | None
    evaluation_step: int | None
    finding_counts: dict[Severity, int]
    findings: list[Finding]
    """The gravest few."""
    read_bytes: int
    log_bytes: int
    notice: str | None
    """What happened to the log meanwhile."""
    is_over: bool
    """The session ended, or its process is gone, and everything was read."""
    outcome: str
    """`passed`, `failed` or `incomplete`: what the run's end and the findings so far amount to."""

    def as_json(self) -> dict[str, Any]:
        """Return the view as plain JSON values."""
        return asdict(self) | {"findings": [found.model_dump(mode="json") for found in self.findings]}


class RunFollower:
    """Reads what a run's log has gained since it last looked. It holds no file open and writes nothing."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._notice: str | None = None
        self._size = 0
        self._begin()

    def _begin(self) -> None:
        self._stream, self._lock = open_stream(self._run_dir)
        self._latest = LatestChecker(self._stream)
        checkers = [*form_checkers(self._stream), *counter_checkers(self._stream), self._latest]
        self._feed = Feed(self._stream, checkers)
        self._last: LogLine | None = None
        self.is_behind = False
        """Whether more lines wait than are read at once."""
        self._identity: FileIdentity | None = None

    def poll(self) -> RunView:
        """Read on, a bounded number of lines, and return how the run stands.

        A log that was replaced or cut short meanwhile is read anew from its beginning, and the view says so.

        Raises:
            EvidenceMissingError: there is no log and nobody is about to write one, or it is gone.
            NewerVersionError: a newer version wrote a session.
            UnsafeError, StorageError: as `read_log`.
        """
        self._lock = lock_state(
            self._run_dir
        )  # before the log: what a writer wrote before it let go is then read
        self._stream.is_live = self._lock.state == "held"
        try:
            self._read_on()
        except EvidenceMissingError as error:
            if self._identity is not None:
                raise EvidenceMissingError(
                    "the log is gone: it was moved or removed while it was watched",
                    path=self._run_dir / LOG,
                    advice="watch the run where it lies now",
                ) from error
            if self._lock.state != "held":
                raise
        refuse_newer(self._stream)
        return self._view()

    def _read_on(self) -> None:
        with read_log(self._run_dir / LOG, after=self._last) as reader:
            why = self._replaced(reader.identity, reader.size)
            if why is None:
                self._identity, self._size = reader.identity, reader.size
                lines = 0
                for line in islice(reader, LINES_AT_ONCE):
                    self._feed.take(line)
                    self._last = line
                    lines += 1
                self.is_behind = lines == LINES_AT_ONCE
                return
        self._notice = why
        self._begin()
        self._read_on()

    def _replaced(self, identity: FileIdentity, size: int) -> str | None:
        if self._identity is not None and identity != self._identity:
            return "the log was replaced by another file: read anew from its beginning"
        if size < self._read_bytes:
            return "the log became shorter than what was read of it: read anew from its beginning"
        return None

    @property
    def _read_bytes(self) -> int:
        return 0 if self._last is None else self._last.offset + self._last.length

    def _view(self) -> RunView:
        stream, latest = self._stream, self._latest
        history, findings = stream.history, stream.findings
        session = history.sessions[-1] if history.sessions else None
        end = None if session is None else session.end
        status, evidence = status_of(
            stream, self._lock, is_complete=end is not None and end.status in FINISHED
        )
        is_at_rest = not self.is_behind and self._lock.state != "held"
        is_over = is_at_rest and (end is not None or status == "crashed")
        facts, target = history.facts, history.target_step()
        rates = latest.rates()
        left = None
        if not is_over and end is None and target is not None and session is not None and rates.steps:
            left = max(0, target - session.last.step) / rates.steps
        return RunView(
            run_id=history.run_id,
            name=None if facts is None else facts.name,
            status=status,
            evidence=evidence,
            session=None if session is None else session.number,
            step=0 if session is None else session.last.step,
            target_step=target,
            attempts=0 if session is None else session.last.attempts,
            skipped=0 if session is None else session.last.skipped,
            last_skip=latest.reason,
            loss=latest.loss,
            losses=latest.losses_on_branch(),
            training_rate=rates.training,
            wall_rate=rates.wall,
            seconds_left=left,
            checkpoint=None if latest.checkpoint is None else latest.checkpoint.path,
            checkpoint_step=None if latest.checkpoint is None else latest.checkpoint.at.step,
            evaluation=None if latest.evaluation is None else latest.evaluation.split,
            evaluation_loss=None if latest.evaluation is None else latest.evaluation.loss,
            evaluation_step=None if latest.evaluation is None else latest.evaluation.step,
            finding_counts=findings.counts,
            findings=findings.kept[:SHOWN_FINDINGS],
            read_bytes=self._read_bytes,
            log_bytes=self._size,
            notice=self._notice,
            is_over=is_over,
            outcome=_outcome(stream, status=None if end is None else end.status, is_over=is_over),
        )


def _outcome(stream: Stream, *, status: str | None, is_over: bool) -> str:
    if stream.findings.count("error") or status == "failed":
        return "failed"
    return (
        "passed" if is_over and status in FINISHED and not stream.findings.count("missing") else "incomplete"
    )


class _Rates(NamedTuple):
    """Tokens a second, and steps a second of wall clock."""

    training: float | None
    wall: float | None
    steps: float | None


class LatestChecker(Checker):
    """Remembers the latest of everything; it finds nothing."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.reason: str | None = None
        self.loss: Measurement | None = None
        self.checkpoint: Checkpoint | None = None
        self.evaluation: Validation | None = None
        self._losses = Series(limit=KEPT_LOSSES)
        self._start: SessionStart | None = None
        self._recent: deque[Train] = deque(maxlen=RECENT + 1)

    def on_session_start(self, event: SessionStart) -> None:
        """Rates of an earlier session are not this one's."""
        self._start = event
        self._recent.clear()

    def on_train(self, event: Train) -> None:
        """Take a train event."""
        self._recent.append(event)
        if event.loss is not None:
            self.loss = event.loss
            if not isinstance(event.loss, str):
                self._losses.add(event.session, Point(event.step, event.microbatches, event.loss))

    def on_overflow(self, event: Overflow) -> None:
        """Take a skipped attempt."""
        self.reason = event.reason

    def on_val(self, event: Validation) -> None:
        """Take an evaluation."""
        self.evaluation = event

    def on_checkpoint(self, event: Checkpoint) -> None:
        """Take a checkpoint."""
        self.checkpoint = event
        self._losses.cut(event.session, event.at.microbatches)

    def losses_on_branch(self) -> list[float]:
        """Return the losses that are kept, along the current branch."""
        pieces = self._losses.pieces(self.stream.history.branch())
        return [point.value for piece in pieces if piece.on_branch for point in piece.points]

    def rates(self) -> _Rates:
        """Return the rates of the latest train events of this session."""
        if not self._recent or self._start is None:
            return _Rates(None, None, None)
        first: Train | SessionStart = self._recent[0] if len(self._recent) > 1 else self._start
        last, windows = self._recent[-1], [event.window for event in self._recent]
        training = sum(window.seconds for window in windows)
        elapsed = last.elapsed - first.elapsed
        return _Rates(
            training=sum(window.tokens for window in windows) / training if training > 0 else None,
            wall=(last.tokens_seen - first.tokens_seen) / elapsed if elapsed > 0 else None,
            steps=(last.step - first.step) / elapsed if elapsed > 0 else None,
        )
