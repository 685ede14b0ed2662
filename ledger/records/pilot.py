"""The records of a pilot: what each stage rests on and was judged by, and the stages of one configuration."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ledger.records.base import Document, Record
from ledger.records.fields import Count, Finite, Json, Measurement, Name, Positive, Sha256, Text, Time
from ledger.records.parts import DataIdentities, LogPosition, Purpose

__all__ = [
    "Gate",
    "PilotRecord",
    "PilotStage",
    "StageCheckpoint",
    "StageFile",
    "StageRecord",
    "StageRun",
]


class Gate(Record):
    """A bound on evidence. An unmeasured or non-finite metric fails, unless nothing was asked of it."""

    metric: Name = Field(description="What was measured.")
    asked: str = Field(description="The bound in words, such as `<= 0.5` or `equal to the control`.")
    min: Finite | None = Field(default=None, description="Least value that is kept; null: none.")
    max: Finite | None = Field(default=None, description="Greatest value that is kept; null: none.")
    equal: Finite | str | None = Field(default=None, description="The one value that is kept; null: none.")
    window: Text | None = Field(
        default=None, description="Over which part of the run it was measured; null: all."
    )
    reason: Text | None = Field(default=None, description="Why this bound was chosen.")
    measured: Measurement | str | None = Field(description="What the records show; null: not measured.")
    gated: bool = Field(default=True, description="False: measured only, nothing was asked (LG902).")
    passed: bool = Field(description="Whether the measurement keeps the bound; true where nothing was asked.")


class StageFile(Record):
    """A file that the stage made, by its path below the stage's folder."""

    path: str
    sha256: Sha256


class StageRun(Record):
    """A run that the stage made, how far its log reaches, and what the audit said of it."""

    path: str = Field(description="Folder below the stage's folder.")
    run_id: Name
    purpose: Purpose
    log_head: LogPosition
    identity_sha256: Sha256
    verdict: Literal["passed", "failed", "incomplete"]
    verdict_sha256: Sha256 = Field(
        description="Digest of the verdict in RFC 8785 form; it lies in the run as verdict.json."
    )


class StageCheckpoint(Record):
    """The checkpoint that `validate` measured: the only one that later stages read."""

    path: str = Field(description="Its folder below the pilot's folder.")
    run_id: Name
    step: Count
    manifest_sha256: Sha256


class StageRecord(Document):
    """stage.json, written last: a stage that finished, with everything its verdict rests on."""

    SCHEMA: ClassVar[str] = "ledger.stage"

    schema_name: Literal["ledger.stage"] = Field("ledger.stage", alias="schema")
    version: Literal[1] = 1
    stage: Name
    fingerprint: Sha256 = Field(
        description="SHA-256 of the RFC 8785 form of {stage, inputs, parts}; its first 16 digits name the folder."
    )
    inputs: dict[str, Json] = Field(
        description="What decided the result: name of an input to its digest or value."
    )
    parts: dict[str, Positive] = Field(description="Versions of the parts that made it.")
    files: list[StageFile]
    runs: list[StageRun]
    checkpoint: StageCheckpoint | None = Field(
        default=None, description="What `validate` measured; null for other stages."
    )
    gates: list[Gate]
    warnings: list[Text] = Field(
        default_factory=list, description="What does not fail a stage, such as LG902."
    )
    passed: bool = Field(description="Whether every gate is kept.")


class PilotStage(Record):
    """One stage of a configuration."""

    stage: Name
    folder: Name = Field(description="Its folder below the pilot's folder.")
    fingerprint: Sha256
    passed: bool | None = Field(description="Null: it is not finished.")


class PilotRecord(Document):
    """pilot.json: the recipe of the long run that was rehearsed last in this folder, and the stages it rests on."""

    SCHEMA: ClassVar[str] = "ledger.pilot"

    schema_name: Literal["ledger.pilot"] = Field("ledger.pilot", alias="schema")
    version: Literal[1] = 1
    tool_version: str
    created: Time = Field(description="When it was written, for people.")
    name: Name
    config: dict[str, Json] = Field(
        description="The long run's resolved configuration, as its recipe will be."
    )
    classes: dict[str, Literal["identity", "operational", "volatile"]] = Field(
        description="Dotted path of each leaf to its class."
    )
    identity_sha256: Sha256 = Field(description="Identity of the long run's recipe.")
    parts: dict[str, Positive] = Field(description="Versions of the parts that the long run uses.")
    target_step: Count = Field(description="Successful updates that the long run is to reach.")
    tokens_per_update: Positive
    planned_tokens: Count = Field(description="target x tokens per update.")
    data: DataIdentities
    stages: list[PilotStage] = Field(min_length=1, description="In the order in which they run.")
    passed: bool = Field(description="Whether every stage is finished and passed, none left out.")
