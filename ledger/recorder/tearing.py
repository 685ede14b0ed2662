"""Whether a report was broken off in its middle: then the account no longer says what happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ledger.errors import UsageError

__all__ = ["Tearing"]


class Tearing:
    """Notes a change of several things that belong together and was left by an exception between two of them.

    A second signal may raise anywhere, also between two counters.
    """

    def __init__(self) -> None:
        self.is_torn = False

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Change what belongs together; a `UsageError` refuses before anything has changed."""
        self.is_torn = True
        try:
            yield
        except UsageError:
            self.is_torn = False
            raise
        self.is_torn = False
