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
from ledger.records.fields import Count

__all__ = ["OUTPUTS", "DoctorOutput", "SealOutput"]


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


@dataclass(frozen=True, kw_only=True)
class DatasetOutput(DatasetInventory):
    """What `ledger data show --json` prints."""

    coverage: dict[str, dict[str, Any]] | None
    """What the run given with --run read of it, by source."""


OUTPUTS: Final[dict[str, Any]] = {
    "output.data-show": DatasetOutput,
    "output.doctor": DoctorOutput,
    "output.explain": Rule,
    "output.repair": RepairReport,
    "output.seal": SealOutput,
    "output.watch": RunView,
}
"""Name of a schema to the type of what the command prints."""
