"""What a stage's gates measure, read from a run's log in one pass, and from the recipe that it names by its digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ledger.errors import LedgerError, StorageError
from ledger.history import History
from ledger.records.documents import Recipe
from ledger.records.events import Checkpoint, Overflow, SkipReason, Train, Validation
from ledger.records.fields import Json, Measurement, is_finite
from ledger.records.layout import LOG, RECIPES
from ledger.records.parts import LogPosition
from ledger.storage.documents import read_document
from ledger.storage.log import read_log

__all__ = ["GateWindow", "RunMeasurements", "TrainRow", "measure_run"]

GateWindow: TypeAlias = Literal["all", "last_half", "last_third"]
"""Which of the current branch's train events a metric is taken over, by their number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainRow:
    """What is kept of one train event."""

    session: int
    microbatches: int
    step: int
    updates: int
    attempts: int
    skipped: int
    tokens: int
    seconds: float
    """Training only."""
    data_seconds: float
    loss: Measurement | None
    grad_norm: Measurement | None
    """Greatest norm of the window, before clipping."""
    clipped: int
    memory: dict[str, Measurement]
    diagnostics: dict[str, Measurement]


@dataclass
class RunMeasurements:
    """The evidence of one run, on its current branch where the history decides."""

    history: History = field(default_factory=History)
    config: Mapping[str, Json] = field(default_factory=dict)
    """The recipe of the last session; empty where it cannot be read."""
    head: LogPosition | None = None
    rows: list[TrainRow] = field(default_factory=list)
    """Every train event, superseded ones included, in the order of the log."""
    skips: dict[SkipReason, int] = field(default_factory=dict)
    """Skipped attempts by reason, of all sessions."""
    longest_skip: int = 0
    """The most attempts that were skipped in a row."""
    checkpoint_count: int = 0
    checkpoint_seconds: float = 0.0
    """For how long checkpoints blocked training, of all sessions."""
    longest_checkpoint: float | None = None
    greatest_checkpoint_bytes: int = 0
    evaluation_seconds: float = 0.0
    batches: dict[int, str] = field(default_factory=dict)
    """Number of each microbatch to the beginning of its digest; work done again replaces what it redid."""

    def branch_rows(self, window: GateWindow = "all") -> list[TrainRow]:
        """Return the train events of the current branch in its order, or only the last part of them."""
        ends = {segment.session.number: segment for segment in self.history.branch()}
        rows = [row for row in self.rows if row.session in ends and ends[row.session].holds(row.microbatches)]
        kept = {"all": len(rows), "last_half": -(-len(rows) // 2), "last_third": -(-len(rows) // 3)}[window]
        return rows[len(rows) - kept :]

    def losses(self, window: GateWindow = "all") -> list[Measurement]:
        """Return the mean losses of the branch's train events that hold an update, in nats."""
        return [row.loss for row in self.branch_rows(window) if row.loss is not None]

    @property
    def final_loss(self) -> Measurement | None:
        """Loss of the branch's last train event that holds an update."""
        losses = self.losses()
        return losses[-1] if losses else None

    @property
    def evaluations(self) -> int:
        """How many evaluations lie on the branch."""
        return len(self.history.evaluations())

    @property
    def complete_loss(self) -> Measurement | None:
        """Loss of the branch's last complete evaluation, in nats."""
        complete = [found.loss for found in self.history.evaluations() if found.complete]
        return complete[-1] if complete else None

    @property
    def elapsed_seconds(self) -> float:
        """Wall clock of all sessions, as far as it was logged."""
        return sum(session.latest.elapsed for session in self.history.sessions)

    def loss_drop(self) -> float | None:
        """Return the mean loss of the first third of the train events minus that of the last third, in nats.

        None where there are fewer than three, or one of them is not finite.
        """
        thirds = self.finite_thirds()
        if thirds is None:
            return None
        first, last = thirds
        return sum(first) / len(first) - sum(last) / len(last)

    def finite_thirds(self) -> tuple[list[float], list[float]] | None:
        """Return the losses of the first and of the last third; None as for `loss_drop`."""
        values = self.losses()
        if len(values) < 3 or not all(is_finite(value) for value in values):
            return None
        numbers = [float(value) for value in values]
        third = len(numbers) // 3
        return numbers[:third], numbers[-third:]

    def checkpoints_on_branch(self) -> int:
        """Return how many checkpoints lie on the current branch."""
        return sum(self.history.is_on_branch(known) for known in self.history.checkpoints())

    def interruptions(self) -> list[int]:
        """Return the numbers of the sessions that ended without saying so, the last one excepted."""
        return [session.number for session in self.history.sessions[:-1] if session.end is None]

    def updates_redone(self) -> int:
        """Return how many updates sessions made again because they were superseded."""
        return sum(session.start.superseded.updates for session in self.history.sessions)


def measure_run(run_dir: Path) -> RunMeasurements:
    """Read a run's log once. Lines that cannot be read are left to the audit, which comes first."""
    found = RunMeasurements()
    for line in read_log(run_dir / LOG):
        if line.event is None or line.position is None:
            continue
        found.head = line.position
        found.history.add(line.event, chain=line.chain)
        match line.event:
            case Train():
                found.rows.append(_row(line.event))
                first = line.event.microbatches - len(line.event.batches)
                found.batches.update(enumerate(line.event.batches, start=first))
            case Validation():
                found.evaluation_seconds += line.event.seconds
            case Overflow():
                reason = line.event.reason
                found.skips[reason] = found.skips.get(reason, 0) + 1
                found.longest_skip = max(found.longest_skip, line.event.consecutive)
            case Checkpoint():
                _add_checkpoint(found, line.event)
    found.config = _config(run_dir, found.history)
    return found


def _config(run_dir: Path, history: History) -> Mapping[str, Json]:
    if not history.sessions:
        return {}
    sha256 = history.sessions[-1].start.recipe_sha256
    try:
        return read_document(run_dir / RECIPES / f"{sha256}.json", Recipe, sha256=sha256).config
    except StorageError:
        raise
    except LedgerError:
        return {}  # what is wrong with it is the audit's to say


def _row(event: Train) -> TrainRow:
    window = event.window
    return TrainRow(
        session=event.session,
        microbatches=event.microbatches,
        step=event.step,
        updates=window.updates,
        attempts=window.attempts,
        skipped=window.skipped,
        tokens=window.tokens,
        seconds=window.seconds,
        data_seconds=window.data_seconds,
        loss=event.loss,
        grad_norm=event.grad_norm_max,
        clipped=event.clipped,
        memory=event.memory,
        diagnostics=event.diagnostics,
    )


def _add_checkpoint(found: RunMeasurements, event: Checkpoint) -> None:
    found.checkpoint_count += 1
    found.checkpoint_seconds += event.seconds
    found.longest_checkpoint = max(found.longest_checkpoint or 0.0, event.seconds)
    found.greatest_checkpoint_bytes = max(found.greatest_checkpoint_bytes, event.bytes)
