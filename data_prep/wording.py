"""Lists in messages: the first few, and how many more there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["listed"]


def listed(items: Iterable[Any], *, limit: int = 5, separator: str = "; ") -> str:
    """Return the first few items as text, and how many more there are."""
    texts = [str(item) for item in items]
    more = f"{separator}and {len(texts) - limit} more" if len(texts) > limit else ""
    return separator.join(texts[:limit]) + more
