"""The record of one pilot stage, written last: what was asked, what was measured, what it rests on."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ledger.records.base import Document, Record
from ledger.records.fields import Measurement, Name, Sha256
from ledger.records.parts import LogPosition

__all__ = ["Gate", "StageFile", "StageRecord", "StageRun"]


class Gate(Record):
    """A bound on evidence. An unmeasured or non-finite metric fails."""

    metric: Name = Field(description="What was measured.")
    asked: str = Field(description="The bound in words, such as `< 0.5` or `equal to the control`.")
    measured: Measurement | str | None = Field(description="What the records show; null: not measured.")
    passed: bool = Field(description="Whether the measurement keeps the bound.")


class StageFile(Record):
    """A file that the stage made, by its path below the stage's folder."""

    path: str
    sha256: Sha256


class StageRun(Record):
    """A run that the stage made and how far its reconciled log reaches."""

    path: str = Field(description="Folder below the stage's folder.")
    run_id: Name
    log_head: LogPosition
    identity_sha256: Sha256


class StageRecord(Document):
    """stage.json: a stage that finished, with everything its verdict rests on."""

    SCHEMA: ClassVar[str] = "ledger.stage"

    schema_name: Literal["ledger.stage"] = Field("ledger.stage", alias="schema")
    version: Literal[1] = 1
    stage: Name
    inputs: dict[str, str] = Field(description="What decided the result: input name to digest or value.")
    files: list[StageFile]
    runs: list[StageRun]
    gates: list[Gate]
    passed: bool
