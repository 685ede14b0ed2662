"""Fetches microbatches ahead in a thread, without a trace: the same bytes and the same cursors as without it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from ledger.dataset.reader import Reader
from ledger.dataset.source import Microbatch
from ledger.errors import UsageError
from ledger.records.parts import Cursor, Position

__all__ = ["PrefetchingReader"]


class PrefetchingReader:
    """A reader whose next few microbatches are read in the background.

    Its cursor is that behind the last microbatch that was handed out; what waits in the queue was not consumed and
    is read again after `restore`. While it is in use nobody else may use the reader that it was given.
    """

    def __init__(self, reader: Reader, *, ahead: int) -> None:
        """Read up to `ahead` microbatches, at least one, before they are asked for; begins with the first `next`."""
        if ahead < 1:
            raise UsageError(f"{ahead} microbatches are to be fetched ahead", expected="at least 1")
        self._reader = reader
        self._ahead = ahead
        self._cursor = reader.cursor
        self._waiting: deque[Future[Microbatch]] = deque()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger-prefetch")

    @property
    def cursor(self) -> Cursor:
        """Where each source goes on behind the last microbatch that was handed out."""
        return dict(self._cursor)

    def next(self) -> Microbatch:
        """Return the next microbatch; raises what reading it raised."""
        while len(self._waiting) <= self._ahead:
            self._waiting.append(self._pool.submit(self._reader.next))
        batch = self._waiting.popleft().result()
        self._cursor = batch.cursor
        return batch

    def restore(self, cursor: Mapping[str, Position]) -> None:
        """Stand where a cursor says; raises what `Reader.restore` raises."""
        self._discard()
        self._reader.restore(cursor)
        self._cursor = self._reader.cursor

    def close(self) -> None:
        """End the thread and let go of what it fetched."""
        self._discard()
        self._pool.shutdown()
        self._reader.close()

    def _discard(self) -> None:
        """Drop what was fetched and wait until nothing is being read."""
        while self._waiting:
            future = self._waiting.pop()
            if not future.cancel():
                future.exception()
