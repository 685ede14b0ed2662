"""recipe.lock.json: the recipe of a long run as it was decided upon, and the rehearsals that it rests on."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ledger.records.base import Document, Record
from ledger.records.fields import Count, Json, Measurement, Name, NonNegative, Positive, Sha256, Text, Time
from ledger.records.parts import DataIdentities, LogPosition, OptimizerGroup

__all__ = [
    "Budget",
    "LockedDataset",
    "LockedPilot",
    "LockedSource",
    "Preemption",
    "RecipeLock",
    "ReplacedLock",
]


class LockedPilot(Record):
    """A rehearsal that a lock rests on."""

    stage: Name = Field(description="What it rehearsed.")
    path: Text = Field(description="Folder of its run when the lock was made, for people.")
    run_id: Name
    identity_sha256: Sha256 = Field(description="Identity of the recipe that it ran.")
    log_head: LogPosition = Field(description="How far its log reached.")
    verdict: Literal["passed", "failed", "incomplete"]
    verdict_sha256: Sha256 = Field(description="Digest of the verdict in RFC 8785 form.")


class LockedSource(Record):
    """Where a dataset's text or tokenizer came from."""

    role: Name = Field(description="train, validation or tokenizer, behind the name of the dataset in a mix.")
    id: Text
    revision: Text | None = Field(description="The immutable revision that was read; null: not pinned.")


class LockedDataset(Record):
    """What a dataset held when the lock was made. Its identity, in `data`, covers all of it."""

    metadata_sha256: Sha256
    tokenizer_sha256: Sha256
    vocabulary: Positive
    tokens: dict[Name, Count] = Field(description="Split to its tokens.")
    sources: list[LockedSource]


class Preemption(Record):
    """What interruptions at a constant rate are expected to cost (`ledger.laws.preemption`)."""

    per_day: NonNegative = Field(description="Interruptions a day of wall clock; an assumption.")
    interruptions: Measurement = Field(description="Expected until the run is done.")
    superseded_hours: Measurement = Field(description="Work expected to be lost and done again.")
    restart_hours: Measurement = Field(description="Starting up again, as often.")
    wall_hours: Measurement = Field(description="Expected wall clock, all of this included.")
    best_interval_hours: Measurement | None = Field(
        description="Between checkpoints, at which taking them and losing work cost least; null: no interruptions."
    )


class Budget(Record):
    """What the long run is expected to take, from what a pilot measured. A projection, no promise."""

    rests_on: Name = Field(description="The stage whose rates these are.")
    updates: Count
    planned_tokens: Count
    tokens_per_second: NonNegative = Field(description="While training only.")
    wall_tokens_per_second: NonNegative = Field(description="Of the pilot, everything included.")
    training_hours: NonNegative
    data_hours: NonNegative = Field(description="Waiting for data.")
    evaluations: Count
    evaluation_hours: NonNegative
    checkpoints: Count
    checkpoint_hours: NonNegative = Field(description="For which they block training.")
    startup_hours: NonNegative = Field(description="Of one session.")
    wall_hours: NonNegative = Field(description="Of a run that is never interrupted.")
    evaluation_share: NonNegative = Field(description="Of that wall clock.")
    checkpoint_share: NonNegative = Field(description="Of that wall clock.")
    checkpoint_bytes: Count = Field(description="Of one checkpoint.")
    written_bytes: Count = Field(description="Of all checkpoints, pruned ones included.")
    kept_bytes: Count = Field(description="Of checkpoints, at most at one time under the retention.")
    log_bytes: Count
    disk_bytes: Count = Field(description="Needed at most: checkpoints and log.")
    free_bytes: Count | None = Field(description="Free where the pilot lies; null: not looked at.")
    preemption: Preemption
    assumptions: list[Text]


class ReplacedLock(Record):
    """The lock that this one takes the place of."""

    sha256: Sha256 = Field(description="Digest of that lock's file.")
    reason: str = Field(min_length=1, max_length=4_096, description="Why the recipe was changed.")


class RecipeLock(Document):
    """recipe.lock.json. Every number of the budget is a projection from the pilots' rates, none a promise."""

    SCHEMA: ClassVar[str] = "ledger.recipe-lock"

    schema_name: Literal["ledger.recipe-lock"] = Field("ledger.recipe-lock", alias="schema")
    version: Literal[1] = 1
    tool_version: str
    created: Time = Field(description="When it was made, for people.")
    identity: dict[str, Json] = Field(description="Dotted path of each identity leaf to its value.")
    identity_sha256: Sha256 = Field(description="SHA-256 of the RFC 8785 form of `identity`.")
    operational: dict[str, Json] = Field(
        default_factory=dict,
        description="The other operational leaves as they were rehearsed; free to change.",
    )
    volatile: dict[str, Json] = Field(
        default_factory=dict, description="The volatile leaves as they were rehearsed; free to change."
    )
    checkpoint: dict[str, Json] | None = Field(
        description="The recipe's checkpoint section; null: it has none."
    )
    target_step: Count = Field(description="Successful updates to reach.")
    tokens_per_update: Positive
    planned_tokens: Count = Field(description="target x tokens per update.")
    data: DataIdentities
    datasets: dict[Name, LockedDataset] = Field(
        default_factory=dict, description="By source, `train` where there is no mix; what `data` stands for."
    )
    model: dict[Name, Count] = Field(default_factory=dict, description="Trainable parameters of each part.")
    optimizer: list[OptimizerGroup] = Field(
        default_factory=list, description="The optimizer's partition of the parameters."
    )
    parts: dict[str, Positive] = Field(
        default_factory=dict, description="Versions of the parts that the recipe uses."
    )
    code: dict[str, Json] = Field(description="Code state of the pilots: commit, dirty, diff_sha256.")
    packages: dict[str, Text] = Field(description="Versions under which the pilots ran.")
    environment: dict[str, Json] = Field(
        default_factory=dict, description="python, platform, hardware and settings of the pilots."
    )
    unpinned: list[str] = Field(description="What the lock cannot hold still, in words.")
    pilots: list[LockedPilot]
    budget: Budget | None = Field(description="Projected hours, volumes and shares of the long run.")
    replaces: ReplacedLock | None = Field(description="The lock it replaces and why, or null.")
    content_sha256: Sha256 | None = Field(
        default=None, description="SHA-256 of the RFC 8785 form of everything else in this file."
    )
