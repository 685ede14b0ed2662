"""What every stage of a pilot is: a folder, what decides its result, how it is built, what its records show.

`build` makes what is missing and continues what was interrupted; `inspect` reads outputs and evidence from records
alone, verifying every byte that they rest on. The runner decides when to do which, and judges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from ledger.pilot.fingerprint import Fingerprint
from ledger.pilot.gates import GateBound, GateBounds, judge
from ledger.pilot.metrics import Evidence
from ledger.pilot.progress import Moment, Phase, Report
from ledger.records.documents import Verdict
from ledger.records.pilot import Gate, StageCheckpoint, StageFile, StageRun

__all__ = ["Found", "Place", "Stage", "StageOutcome"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a stage works and who is told of it."""

    root: Path
    """The pilot's folder."""
    report: Report


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a stage's records show."""

    evidence: Evidence
    files: list[StageFile] = field(default_factory=list)
    runs: list[StageRun] = field(default_factory=list)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    """What the audit said of each run, by the run's path."""
    checkpoint: StageCheckpoint | None = None


@dataclass(frozen=True, kw_only=True)
class StageOutcome:
    """A stage as the table at the end shows it."""

    stage: str
    folder: Path
    gates: list[Gate]
    notes: list[str]
    """What is to be said of the gates: LG901 for each that was missed, LG902 where nothing was asked."""
    passed: bool
    reused: bool
    """Whether it was there already; then nothing was built."""


class Stage(ABC):
    """One stage of a pilot, in a folder that is named by everything that decides its result."""

    def __init__(self, fingerprint: Fingerprint, place: Place, *, asked: GateBounds) -> None:
        self.name = fingerprint.stage
        self.fingerprint = fingerprint
        self.place = place
        self.folder = place.root / fingerprint.folder
        self._asked = asked

    built_in: ClassVar[Mapping[str, GateBound]] = {}
    """Gates that the stage has whatever its name is, laid under those that are asked for."""

    @abstractmethod
    def build(self) -> None:
        """Make what is missing; continue what was interrupted; damage raises."""

    @abstractmethod
    def inspect(self) -> Found:
        """Read outputs and evidence from records alone, verifying every byte that they rest on."""

    def outputs(self) -> Sequence[Path]:
        """Return the folders that the evidence lies in."""
        return [self.folder]

    def judge(self, evidence: Evidence) -> list[Gate]:
        """Return the stage's gates, each measured."""
        return judge(self.name, {**self.built_in, **self._asked}, evidence)

    def asked_gates(self) -> list[Gate]:
        """Return the stage's gates, nothing measured."""
        return self.judge(Evidence())

    def chosen(self, gates: list[Gate]) -> list[Gate]:
        """Return those gates that are there because somebody chose a bound."""
        return [gate for gate in gates if gate.metric not in self.built_in]

    def say(self, phase: Phase, run_dir: Path | None = None, *, note: str = "") -> None:
        """Tell what the stage is doing."""
        self.place.report(Moment(stage=self.name, phase=phase, run_dir=run_dir, note=note))

    @property
    def output(self) -> Path:
        """The file that takes what the stage's processes print."""
        return self.folder / "output.log"
