"""What commands print with `--json` that is no document: the types from which their schemas are published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import Field

from ledger.audit.following import RunView
from ledger.audit.rules.base import Rule
from ledger.dataset.inventory import DatasetInventory
from ledger.maintain import RepairReport
from ledger.records.base import Record
from ledger.records.fields import Count, Json, Sha256
from ledger.records.locks import RecipeLock
from ledger.records.pilot import Gate

__all__ = [
    "OUTPUTS",
    "DoctorOutput",
    "FreezeCheckOutput",
    "FreezeOutput",
    "LockDifference",
    "PilotChange",
    "PilotExplainOutput",
    "PilotOutput",
    "PilotStageOutput",
    "SealOutput",
    "StageExplanation",
]


class SealOutput(Record):
    """What `ledger seal --json` prints when the run is sealed; a verdict where it is not."""

    files: Count = Field(description="Files that the seal covers.")
    bytes: Count
    head: list[str] = Field(min_length=3, max_length=3, description="Three lines to quote.")
    attestation: str | None = Field(description="Where the attestation lies; null where none was asked for.")


class DoctorCheck(Record):
    """One check of `ledger doctor`."""

    name: str
    status: Literal["ok", "warning", "failed"]
    detail: str


class DoctorMount(Record):
    """The file system that a folder lies on."""

    kind: str
    point: str
    source: str


class DoctorOutput(Record):
    """What `ledger doctor --json` prints."""

    folder: str
    file_system: DoctorMount | None
    file_system_class: Literal["local", "volatile", "network", "unknown"] = Field(alias="class")
    checks: list[DoctorCheck]
    verdict: Literal["safe", "safe with warnings", "unsafe"]


class PilotStageOutput(Record):
    """A stage that `ledger pilot` built or reused."""

    stage: str
    folder: str
    passed: bool = Field(description="Whether every gate is kept.")
    reused: bool = Field(description="Whether it was there already; then nothing was built.")
    gates: list[Gate]
    notes: list[str] = Field(
        description="LG901 for each gate that was missed, what the audit found first in a run that it did not pass, "
        "LG902 for what was not asked."
    )


class PilotOutput(Record):
    """What `ledger pilot --json` prints."""

    verdict: Literal["passed", "failed", "incomplete"] = Field(
        description="passed is GO; of a part, where stages were left out, it is incomplete."
    )
    left_out: list[str] = Field(description="Stages that the configuration does not ask for.")
    not_run: list[str] = Field(description="Stages behind the one that failed.")
    stages: list[PilotStageOutput] = Field(description="In the order in which they ran.")


class PilotChange(Record):
    """One input in which a stage differs from another of its name."""

    input: str
    before: Json = Field(description="In the stage that is there; null: absent.")
    after: Json = Field(description="In the one that would run; null: absent.")


class StageExplanation(Record):
    """What would happen to one stage."""

    stage: str
    standing: Literal["passed", "failed", "begun", "absent", "unreadable", "unknown"]
    folder: str | None = Field(
        description="Below the pilot's folder; null: not known before the corpus is there."
    )
    nearest: str | None = Field(description="Folder of the recorded stage of this name that differs least.")
    changes: list[PilotChange] = Field(description="In what it differs from that one.")


class PilotExplainOutput(Record):
    """What `ledger pilot --explain --json` prints."""

    stages: list[StageExplanation]


class FreezeOutput(Record):
    """What `ledger freeze --json` prints."""

    path: str
    sha256: Sha256 = Field(description="Digest of the lock's file.")
    lock: RecipeLock


class LockDifference(Record):
    """One thing on which a lock and a configuration differ."""

    kind: Literal[
        "identity", "target", "checkpoint", "data", "parts", "operational", "volatile", "environment"
    ]
    held: bool = Field(description="Whether the lock forbids it.")
    field: str
    locked: Json = Field(description="In the lock; null: absent.")
    found: Json = Field(description="In the configuration; null: absent.")


class FreezeCheckOutput(Record):
    """What `ledger freeze --check --json` prints."""

    allowed: bool = Field(description="Whether nothing differs that the lock holds.")
    differences: list[LockDifference]


@dataclass(frozen=True, kw_only=True)
class DatasetOutput(DatasetInventory):
    """What `ledger data show --json` prints."""

    coverage: dict[str, dict[str, Any]] | None
    """What the run given with --run read of it, by source."""


OUTPUTS: Final[dict[str, Any]] = {
    "output.data-show": DatasetOutput,
    "output.doctor": DoctorOutput,
    "output.explain": Rule,
    "output.freeze": FreezeOutput,
    "output.freeze-check": FreezeCheckOutput,
    "output.pilot": PilotOutput,
    "output.pilot-explain": PilotExplainOutput,
    "output.repair": RepairReport,
    "output.seal": SealOutput,
    "output.watch": RunView,
}
"""Name of a schema to the type of what the command prints."""
