"""waivers.json: findings that a person accepted, with a reason, a name and an end."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from pydantic import Field

from ledger.records.base import Document, Record
from ledger.records.fields import Time

__all__ = ["Waiver", "Waivers", "is_waivable"]

INTEGRITY_RULES: Final = frozenset({"LG402", "LG503", "LG705"})
INTEGRITY_GROUP: Final = "LG1"


def is_waivable(rule: str) -> bool:
    """Tell whether a finding of this rule may be accepted: whoever waives integrity has no evidence left."""
    return not rule.startswith(INTEGRITY_GROUP) and rule not in INTEGRITY_RULES


class Waiver(Record):
    """One accepted finding."""

    rule: str = Field(pattern=r"^LG[0-9]{3}$", description="The rule whose finding is accepted.")
    where: str = Field(
        min_length=1, max_length=4_096, description="Its place, exactly as the verdict states it."
    )
    reason: str = Field(min_length=1, max_length=4_096, description="Why it does not matter.")
    name: str = Field(min_length=1, max_length=256, description="Who accepts it.")
    expires: Time = Field(description="From then on the finding counts again.")


class Waivers(Document):
    """waivers.json: every accepted finding of a run."""

    SCHEMA: ClassVar[str] = "ledger.waivers"

    schema_name: Literal["ledger.waivers"] = Field("ledger.waivers", alias="schema")
    version: Literal[1] = 1
    waivers: list[Waiver]
