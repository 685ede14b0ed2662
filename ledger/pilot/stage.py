"""What every stage of a pilot is: a folder, what decides its result, how it is built, how it is judged.

`build` makes what is missing and continues what was interrupted; `inspect` reads gates and outputs from records
alone. The runner decides when to do which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.records.fields import Measurement, is_finite
from ledger.records.pilot import Gate, StageFile, StageRun
from ledger.storage.digests import hash_file

__all__ = [
    "Evidence",
    "Stage",
    "StageOutcome",
    "StageSettings",
    "gate_at_least",
    "gate_at_most",
    "gate_equal",
]


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """Where a pilot lies and who is told about the progress inside a stage."""

    root: Path
    """The pilot's folder."""
    configs: Path
    """Folder that configuration names are relative to."""
    report: Callable[[str, Path | None], None]
    """Told the stage, and the run folder that is being written, again and again while a process works."""

    @property
    def dataset(self) -> Path:
        """Where the prepared corpus lies."""
        return self.root / "prepare" / "dataset"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a stage's records show."""

    gates: list[Gate]
    files: list[StageFile]
    runs: list[StageRun]

    @property
    def passed(self) -> bool:
        """Whether every gate is kept."""
        return all(gate.passed for gate in self.gates)


@dataclass(frozen=True, kw_only=True)
class StageOutcome:
    """A stage as the table at the end shows it."""

    stage: str
    gates: list[Gate]
    passed: bool
    reused: bool


class Stage(ABC):
    """One stage of a pilot, in a folder of its own."""

    def __init__(self, name: str, settings: StageSettings) -> None:
        self.name = name
        self.settings = settings
        self.folder = settings.root / name

    @abstractmethod
    def build(self) -> None:
        """Make what is missing; continue what was interrupted; damage raises."""

    @abstractmethod
    def inspect(self) -> Evidence:
        """Read gates and outputs from records alone, verifying every byte they rest on."""

    @property
    @abstractmethod
    def configs(self) -> Sequence[str]:
        """Configuration files that decide the stage's result, relative to the pilot's file."""

    def inputs(self) -> dict[str, str]:
        """Return what decides the stage's result: each configuration's digest."""
        paths = {name: self.settings.configs / name for name in self.configs}
        return {name: hash_file(path).sha256 for name, path in paths.items()}

    def config_arguments(self) -> list[str]:
        """Return the configurations as command-line arguments."""
        return [part for name in self.configs for part in ("--config", str(self.settings.configs / name))]

    @property
    def output(self) -> Path:
        """The file that takes what the stage's processes print."""
        return self.folder / "output.log"


def gate_at_least(metric: str, measured: Measurement | None, *, least: float) -> Gate:
    """Ask for a measurement of at least `least`; an unmeasured or non-finite one fails."""
    passed = is_finite(measured) and float(measured or 0) >= least
    return Gate(metric=metric, asked=f">= {least:g}", measured=measured, passed=passed)


def gate_at_most(metric: str, measured: Measurement | None, *, most: float) -> Gate:
    """Ask for a measurement of at most `most`; an unmeasured or non-finite one fails."""
    passed = is_finite(measured) and float(measured or 0) <= most
    return Gate(metric=metric, asked=f"<= {most:g}", measured=measured, passed=passed)


def gate_equal(metric: str, measured: str, *, asked: str) -> Gate:
    """Ask for one certain word."""
    return Gate(metric=metric, asked=asked, measured=measured, passed=measured == asked)
