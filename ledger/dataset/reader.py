"""Reads microbatches without end, from one source or from a mix, and knows where it stands.

What a microbatch holds is a pure function of sources, law and position. A reader only remembers where it is, and
its cursor travels with each batch, so that what was fetched ahead is never mistaken for what was consumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ledger.dataset.mix import MixLaw
from ledger.dataset.order import START
from ledger.dataset.source import Microbatch, Source
from ledger.errors import RefusedError, UsageError
from ledger.records.parts import Cursor, Position

__all__ = ["Reader"]


class Reader:
    """Reads from a cursor on; a source that is exhausted begins its next epoch."""

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        law: MixLaw | None = None,
        cursor: Mapping[str, Position] | None = None,
    ) -> None:
        """Stand at `cursor`, by default at the beginning.

        Args:
            sources: what is read; their microbatches are of one size.
            law: chooses the source of each microbatch; None with one source alone.
            cursor: where to go on.

        Raises:
            UsageError: sources and law do not fit each other.
            RefusedError: the cursor cannot be reached with these sources.
        """
        self.sources = {source.name: source for source in sources}
        names = tuple(sorted(self.sources))
        if len(names) != len(sources) or names != (law.names if law else names[:1]):
            raise UsageError(
                f"the sources are {', '.join(source.name for source in sources)}",
                expected="one, or those that the law of the mix names",
            )
        self._law = law
        self._cursor: Cursor = dict.fromkeys(names, START)
        self._microbatch = 0
        if cursor is not None:
            self.restore(cursor)

    @property
    def cursor(self) -> Cursor:
        """Where each source goes on."""
        return dict(self._cursor)

    def next(self) -> Microbatch:
        """Return the next microbatch and stand behind it."""
        batch = self._read(self._cursor, self._microbatch)
        self._cursor, self._microbatch = batch.cursor, self._microbatch + 1
        return batch

    def restore(self, cursor: Mapping[str, Position]) -> None:
        """Stand where a cursor says.

        Raises:
            RefusedError: it names other sources, or a position that cannot be reached here.
        """
        self._microbatch = self.microbatch_of(cursor)
        self._cursor = dict(cursor)

    def microbatch_of(self, cursor: Mapping[str, Position]) -> int:
        """Return the number of the microbatch that is read at a cursor: as many were read before it.

        Raises:
            RefusedError: reading these sources never stands there.
        """
        if set(cursor) != set(self.sources):
            problem = f"the cursor names the sources {sorted(cursor)}"
            expected = (
                f"the sources {sorted(self.sources)}"
                if self._law
                else f"the source {self._only.name!r} alone"
            )
            raise RefusedError(problem, place="cursor", expected=expected)
        read = {name: source.order.microbatch_at(cursor[name]) for name, source in self.sources.items()}
        total = sum(read.values())
        lawful = self._counts(total)
        if read != lawful:
            raise RefusedError(
                f"the sources stand after {read} microbatches",
                place="cursor",
                expected=f"{lawful}, as the weights and the seed of the mix choose",
                advice="resume with the sources, weights and seed of the run",
            )
        return total

    def cursor_at(self, microbatch: int) -> Cursor:
        """Return the cursor at which the microbatch with this number, counted from the run's beginning, is read."""
        counts = self._counts(microbatch)
        return {name: source.order.position_of(counts[name]) for name, source in self.sources.items()}

    def microbatch_at(self, microbatch: int) -> Microbatch:
        """Return the microbatch with this number, counted from the run's beginning, without moving."""
        return self._read(self.cursor_at(microbatch), microbatch)

    def close(self) -> None:
        """Let go of memory and threads."""
        for source in self.sources.values():
            source.close()

    @property
    def _only(self) -> Source:
        (source,) = self.sources.values()
        return source

    def _counts(self, microbatches: int) -> dict[str, int]:
        if self._law is None:
            return {self._only.name: microbatches}
        return self._law.counts(0, count=microbatches)

    def _read(self, cursor: Cursor, microbatch: int) -> Microbatch:
        source = self._only if self._law is None else self.sources[self._law.source_at(microbatch)]
        batch = source.microbatch_at(cursor[source.name])
        return replace(batch, cursor={**cursor, **batch.cursor})
