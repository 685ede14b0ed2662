"""The two bases of every document model: strict, immutable, no unknown keys."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict

__all__ = ["Document", "Record"]


class Record(BaseModel):
    """Base of every part of a document: strict types, immutable, no unknown keys."""

    model_config = ConfigDict(
        strict=True, frozen=True, extra="forbid", populate_by_name=True, defer_build=True
    )


class Document(Record):
    """Base of every document: it names its schema and carries an integer version."""

    SCHEMA: ClassVar[str]
    VERSION: ClassVar[int] = 1
