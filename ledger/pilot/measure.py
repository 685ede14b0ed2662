"""What a stage's gates measure, read from a run's log in one pass and from nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ledger.history import History
from ledger.records.events import Overflow, Train, Validation
from ledger.records.fields import Measurement, is_finite
from ledger.records.layout import LOG
from ledger.records.parts import LogPosition
from ledger.storage.log import read_log

__all__ = ["RunMeasurements", "measure_run"]


@dataclass
class RunMeasurements:
    """The evidence of one run, on its current branch where the history decides."""

    history: History = field(default_factory=History)
    head: LogPosition | None = None
    losses: dict[int, Measurement] = field(default_factory=dict)
    """Step of each train event to its mean loss in nats; redone work replaces what it redid."""
    evaluations: int = 0
    complete_loss: Measurement | None = None
    """Loss of the last complete evaluation, in nats."""
    skips: int = 0

    @property
    def final_loss(self) -> Measurement | None:
        """Loss of the last train event."""
        return self.losses[max(self.losses)] if self.losses else None

    def loss_drop(self) -> float | None:
        """Return the mean loss of the first third of the train events minus that of the last third, in nats.

        None where there are fewer than three, or one of them is not finite.
        """
        values = [self.losses[step] for step in sorted(self.losses)]
        if len(values) < 3 or not all(is_finite(value) for value in values):
            return None
        numbers = [float(value) for value in values]
        third = len(numbers) // 3
        return sum(numbers[:third]) / third - sum(numbers[-third:]) / third

    def checkpoints_on_branch(self) -> int:
        """Return how many checkpoints lie on the current branch."""
        return sum(self.history.is_on_branch(known) for known in self.history.checkpoints())

    def interruptions(self) -> list[int]:
        """Return the numbers of the sessions that ended without saying so, the last one excepted."""
        return [session.number for session in self.history.sessions[:-1] if session.end is None]


def measure_run(run_dir: Path) -> RunMeasurements:
    """Read a run's log once. Lines that cannot be read are left to the audit, which comes first."""
    found = RunMeasurements()
    for line in read_log(run_dir / LOG):
        if line.event is None or line.position is None:
            continue
        found.head = line.position
        found.history.add(line.event, line.position)
        match line.event:
            case Train(step=step, loss=loss) if loss is not None:
                found.losses[step] = loss
            case Validation(complete=complete, loss=loss):
                found.evaluations += 1
                found.complete_loss = loss if complete else found.complete_loss
            case Overflow():
                found.skips += 1
    return found
