"""recipe.lock.json: the recipe of a long run as it was decided upon, and the rehearsals that it rests on."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ledger.records.base import Document, Record
from ledger.records.fields import Count, Json, Name, Positive, Sha256, Text, Time
from ledger.records.parts import DataIdentities, LogPosition

__all__ = ["LockedPilot", "RecipeLock", "ReplacedLock"]


class LockedPilot(Record):
    """A rehearsal that a lock rests on."""

    stage: Name = Field(description="What it rehearsed.")
    path: Text = Field(description="Folder of its run when the lock was made, for people.")
    run_id: Name
    identity_sha256: Sha256 = Field(description="Identity of the recipe that it ran.")
    log_head: LogPosition = Field(description="How far its log reached.")
    verdict: Literal["passed", "failed", "incomplete"]
    verdict_sha256: Sha256 = Field(description="Digest of the verdict in RFC 8785 form.")


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
    checkpoint: dict[str, Json] | None = Field(
        description="The recipe's checkpoint section; null: it has none."
    )
    target_step: Count = Field(description="Successful updates to reach.")
    tokens_per_update: Positive
    planned_tokens: Count = Field(description="target x tokens per update.")
    data: DataIdentities
    code: dict[str, Json] = Field(description="Code state of the pilots: commit, dirty, diff_sha256.")
    packages: dict[str, Text] = Field(description="Versions under which the pilots ran.")
    unpinned: list[str] = Field(description="What the lock cannot hold still, in words.")
    pilots: list[LockedPilot]
    budget: dict[str, Json] = Field(description="Projected hours, volumes and shares of the long run.")
    replaces: ReplacedLock | None = Field(description="The lock it replaces and why, or null.")
