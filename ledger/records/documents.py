"""The documents beside the log: strict pydantic models, each with its schema name and version.

A document is stored in RFC 8785 form, so its digest is that of its file. Reading and writing them is the work of
`ledger.storage.documents`.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from ledger.records.base import Document, Record
from ledger.records.dataset import DatasetManifest, PreparationNotes
from ledger.records.fields import Count, Json, Measurement, Name, Positive, Sha256, Text, Time
from ledger.records.locks import RecipeLock
from ledger.records.parts import (
    Counters,
    Cursor,
    DataIdentities,
    LogPosition,
    ModelSummary,
    OptimizerGroup,
    Parent,
    Purpose,
    RunParent,
    StateDigests,
)
from ledger.records.pilot import PilotRecord, StageRecord
from ledger.records.waivers import Waiver, Waivers

__all__ = [
    "DOCUMENTS",
    "CheckpointFile",
    "CheckpointManifest",
    "Document",
    "Environment",
    "Evaluation",
    "Finding",
    "LeafClass",
    "Recipe",
    "Record",
    "RunDocument",
    "RunSession",
    "Seal",
    "SealedFile",
    "Severity",
    "TensorEntry",
    "TrainerState",
    "Verdict",
]

LeafClass = Literal["identity", "operational", "volatile"]
Severity = Literal["error", "missing", "warning", "hint"]


class RunSession(Record):
    """One session in the index of run.json."""

    session: Positive = Field(description="1, 2, … in the order in which they started.")
    session_id: Name = Field(description="Unique name of this session.")
    started: Time = Field(description="Wall-clock time of its session_start, for people.")
    parent: Parent | None = Field(
        description="The checkpoint it started from; null from the run's beginning."
    )
    recipe_sha256: Sha256 = Field(description="Digest of the effective recipe, a file in recipes/.")
    environment_sha256: Sha256 = Field(description="Digest of the environment, a file in environments/.")
    argv: list[str] = Field(description="The command line as typed.")
    log: LogPosition = Field(description="Where its session_start stands on the log.")


class RunDocument(Document):
    """run.json: the identity of a run and the index of its sessions, derived from the log."""

    SCHEMA: ClassVar[str] = "ledger.run"

    schema_name: Literal["ledger.run"] = Field("ledger.run", alias="schema")
    version: Literal[1] = 1
    run_id: Name = Field(description="Unique name of this run.")
    name: str = Field(min_length=1, max_length=256, description="What people call it.")
    purpose: Purpose = Field(description="What the run is for.")
    parent: RunParent | None = Field(description="The checkpoint of another run it branched from, or null.")
    recipe_lock_sha256: Sha256 | None = Field(description="Digest of the lock it was started under, or null.")
    data: DataIdentities = Field(description="metadata_sha256 of the datasets it reads.")
    model: ModelSummary = Field(description="Trainable parameters of each part of the model.")
    optimizer: list[OptimizerGroup] = Field(description="The optimizer's partition of the parameters.")
    target_step: Count = Field(description="Successful updates to reach; the target in force.")
    planned_tokens: Count = Field(description="(target - start) x tokens per update; a plan, no measurement.")
    sessions: list[RunSession] = Field(min_length=1, description="Every session of the run.")


class Recipe(Document):
    """recipes/<sha256>.json: an effective recipe and the class of each of its leaves."""

    SCHEMA: ClassVar[str] = "ledger.recipe"

    schema_name: Literal["ledger.recipe"] = Field("ledger.recipe", alias="schema")
    version: Literal[1] = 1
    config: dict[str, Json] = Field(description="The resolved configuration; it loads on its own.")
    classes: dict[str, LeafClass] = Field(description="Dotted path of each leaf to its class.")


class Environment(Document):
    """environments/<sha256>.json: what the machine, its software and the code were."""

    SCHEMA: ClassVar[str] = "ledger.environment"

    schema_name: Literal["ledger.environment"] = Field("ledger.environment", alias="schema")
    version: Literal[1] = 1
    packages: dict[str, Text] = Field(description="Distribution name to version.")
    python: Text = Field(description="Implementation and version.")
    platform: Text = Field(description="Operating system, kernel and architecture.")
    hardware: dict[str, Json] = Field(description="Processor, cores, memory, accelerators.")
    settings: dict[str, Json] = Field(
        description="Thread counts, variables and switches that decide the bits."
    )
    code: dict[str, Json] = Field(
        description="commit, dirty and diff_sha256 of the code; null where unknown."
    )


class TensorEntry(Record):
    """One tensor as stored: what its digest covers is its little-endian bytes."""

    dtype: Text
    shape: list[Count]
    sha256: Sha256


class CheckpointFile(Record):
    """One file of a checkpoint."""

    bytes: Count
    sha256: Sha256
    tensors: dict[str, TensorEntry] | None = Field(description="Per-tensor digests; null for other files.")


class CheckpointManifest(Document):
    """manifest.json of a checkpoint, written last: what it holds and the log position that vouches for it."""

    SCHEMA: ClassVar[str] = "ledger.checkpoint"

    schema_name: Literal["ledger.checkpoint"] = Field("ledger.checkpoint", alias="schema")
    version: Literal[1] = 1
    run_id: Name
    session: Positive
    kind: Literal["final", "milestone", "signal", "interval"]
    counters: Counters
    cursor: Cursor
    data_chain: Sha256
    state: StateDigests = Field(description="Digests that the loop computed from live objects.")
    recipe_sha256: Sha256
    identity_sha256: Sha256
    data: DataIdentities
    log: LogPosition = Field(description="The last event before the checkpoint was captured.")
    files: dict[Name, CheckpointFile]


class TrainerState(Document):
    """trainer.json of a checkpoint: everything a resume needs that is not a tensor."""

    SCHEMA: ClassVar[str] = "ledger.trainer-state"

    schema_name: Literal["ledger.trainer-state"] = Field("ledger.trainer-state", alias="schema")
    version: Literal[1] = 1
    session: Positive
    seq: Count = Field(description="seq of the last event before the checkpoint was captured.")
    counters: Counters
    cursor: Cursor
    data_chain: Sha256
    consecutive_skips: Count
    schedule: Json = Field(description="The schedule's position.")
    rng: Json = Field(description="Every random generator's state, of all ranks.")
    scaler: Json = Field(description="The gradient scaler, {scale, growth_tracker}, or null.")
    guards: Json = Field(description="The windows of guards, or null.")


class Evaluation(Document):
    """evaluations/*.json: one measurement of a checkpoint or of the final state."""

    SCHEMA: ClassVar[str] = "ledger.evaluation"

    schema_name: Literal["ledger.evaluation"] = Field("ledger.evaluation", alias="schema")
    version: Literal[1] = 1
    run_id: Name
    manifest_sha256: Sha256 | None = Field(description="The checkpoint's manifest; null where none is kept.")
    state: StateDigests | None = Field(description="Digests of the final state where no weights are kept.")
    step: Count
    split: Name
    data_sha256: Sha256
    loss: Measurement = Field(description="Token-weighted cross-entropy in nats.")
    tokens: Count = Field(description="Target positions measured.")
    batches: Count
    complete: bool = Field(description="Every target position of the split was measured.")
    metrics: dict[str, Measurement]
    environment_sha256: Sha256


class Finding(Record):
    """What one rule found at one place."""

    rule: str = Field(pattern=r"^LG[0-9]{3}$")
    severity: Severity
    where: str = Field(description="File, line, byte offset or seq: the place to look.")
    message: str = Field(description="What was expected, what was found, what to do.")
    evidence: dict[str, Json] = Field(default_factory=dict, description="The values compared.")
    waiver: Waiver | None = Field(
        default=None, description="Who accepted it and why; it does not count then."
    )


class Verdict(Document):
    """verdict.json, and what `ledger reconcile --json` prints."""

    SCHEMA: ClassVar[str] = "ledger.verdict"

    schema_name: Literal["ledger.verdict"] = Field("ledger.verdict", alias="schema")
    version: Literal[1] = 1
    tool_version: str
    run_id: Name | None
    log_head: LogPosition | None = Field(description="The last line that the verdict covers.")
    verdict: Literal["passed", "failed", "incomplete"]
    status: str = Field(description="Derived from evidence, never from a process's exit.")
    checked: list[str] = Field(description="Rules that were checked.")
    not_checked: dict[str, str] = Field(description="What was not checked, and why.")
    not_applicable: dict[str, str] = Field(description="Rules that do not apply to this run, and why.")
    branch: Counters | None = Field(description="Totals of the current branch.")
    spent: Counters | None = Field(description="Totals over all sessions, superseded work included.")
    account: dict[str, Json] = Field(description="Sessions, seconds, coverage, uncertainty.")
    findings: list[Finding]
    finding_counts: dict[Severity, Count] = Field(
        description="Exact counts of what is not waived; the list above is bounded."
    )
    rule_counts: dict[str, dict[Severity, Count]] = Field(
        default_factory=dict, description="Exact counts of what is not waived, by rule and severity."
    )
    waived: Count = Field(default=0, description="Findings that a waiver takes out of these counts.")


class SealedFile(Record):
    """One file that a seal covers."""

    bytes: Count
    sha256: Sha256


class Seal(Document):
    """seal.json: the run was declared done. Nothing is added to it, changed or removed from then on."""

    SCHEMA: ClassVar[str] = "ledger.seal"

    schema_name: Literal["ledger.seal"] = Field("ledger.seal", alias="schema")
    version: Literal[1] = 1
    run_id: Name
    sealed: Time = Field(description="Wall-clock time of the sealing, for people.")
    log: LogPosition = Field(description="The last line of the log.")
    verdict: Verdict = Field(description="The passed verdict, of every byte, that it rests on.")
    files: dict[str, SealedFile] = Field(
        min_length=1, description="Every file of the run but run.lock, logs/ and the seal, by its path."
    )


DOCUMENTS: Final[dict[str, type[Document]]] = {
    model.SCHEMA: model
    for model in (
        RunDocument,
        Recipe,
        Environment,
        CheckpointManifest,
        TrainerState,
        Evaluation,
        Verdict,
        Seal,
        DatasetManifest,
        PreparationNotes,
        RecipeLock,
        StageRecord,
        PilotRecord,
        Waivers,
    )
}
"""Schema name to model, for the reader and for `ledger schema`."""
