"""LG210, LG505: where reading stands, source by source."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from ledger.audit.corpus import Corpus, epoch_tokens, identities_in_mix
from ledger.audit.stream import Checker, Stream, place
from ledger.audit.track import Track
from ledger.records.events import AnyEvent, SessionEnd, SessionStart, Train, UnknownEvent
from ledger.records.parts import Cursor, Position, StateDigests
from ledger.storage.canonical import digest_of
from ledger.storage.log_reader import LogLine

__all__ = ["CursorChecker", "EpochLengths", "PositionChecker", "microbatches_by_source", "spell"]


def spell(cursor: Cursor) -> str:
    """Return a cursor as text: `train (0, 512)`."""
    return ", ".join(f"{source} ({at.epoch}, {at.offset})" for source, at in sorted(cursor.items()))


def microbatches_by_source(track: Track, *, start: int, count: int) -> dict[str, int] | None:
    """Return how many of `count` microbatches from number `start` on read each source; None where nobody says."""
    rule = track.reading
    if isinstance(rule, str):
        return None
    if rule.law is None:
        return dict.fromkeys(track.start.cursor, count)
    return rule.law.counts(start, count=count)


class EpochLengths:
    """Tokens of one epoch of each source: from the recipe or the dataset, else from the first crossing in the log."""

    def __init__(self, stream: Stream, corpus: Corpus) -> None:
        self._stream = stream
        self._corpus = corpus
        self.known: dict[str, int] = {}
        self.inferred: set[str] = set()

    def learn(self, cursor: Cursor) -> None:
        """Look up the sources of a cursor, with the recipe of the session at hand."""
        track = self._stream.track
        if track is None:
            return
        for source in cursor:
            if source in self.known and source not in self.inferred:
                continue
            tokens = epoch_tokens(track, source=source, corpus=self._corpus)
            if tokens is not None:
                self.known[source] = tokens
                self.inferred.discard(source)


class CursorChecker(Checker):
    """LG210: from one train event to the next the cursor moves by the window's microbatches, and is the live one."""

    rules: ClassVar[tuple[str, ...]] = ("LG210",)

    def __init__(self, stream: Stream, *, epochs: EpochLengths) -> None:
        super().__init__(stream)
        self._epochs = epochs
        self._cursor: Cursor | None = None

    def on_session_start(self, event: SessionStart) -> None:
        """Begin at the cursor that the session states."""
        self._epochs.learn(event.cursor)
        self._cursor = event.cursor
        self._check_bounds(event.cursor, event.tokens_per_microbatch)
        self._check_digest(event.cursor, event.state)

    def on_train(self, event: Train) -> None:
        """Compare the cursor's move with what the window consumed."""
        before, track = self._cursor, self.stream.track
        self._cursor = event.cursor
        self._check_digest(event.cursor, event.state)
        if before is None or track is None or self.stream.previous is None:
            return
        size = track.start.tokens_per_microbatch
        if before.keys() != event.cursor.keys():
            self._report(f"the cursor names {sorted(event.cursor)}, before {sorted(before)}")
            return
        self._check_bounds(event.cursor, size)
        if any(at.epoch < before[source].epoch for source, at in event.cursor.items()):
            self._report(f"the cursor goes back from {spell(before)} to {spell(event.cursor)}")
            return
        read = len(event.batches)
        lawful = None
        if len(event.cursor) > 1:
            lawful = microbatches_by_source(track, start=max(0, event.microbatches - read), count=read)
        if lawful is None:
            self._check_move(before, event.cursor, consumed=read * size, size=size)
            return
        for source, count in lawful.items():
            move = ({source: before[source]}, {source: event.cursor[source]})
            self._check_move(*move, consumed=count * size, size=size)

    def on_session_end(self, event: SessionEnd) -> None:
        """The state that a session ends with stands where its last event with a cursor does."""
        if self._cursor is not None and self.stream.previous is not None:
            self._check_digest(self._cursor, event.state)

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Behind a damaged place the next train event is the new beginning."""
        if self.stream.previous is None and not isinstance(event, SessionStart):
            self._cursor = None

    def _check_move(self, before: Cursor, after: Cursor, *, consumed: int, size: int) -> None:
        """Check that these sources together moved by the tokens consumed, and learn an epoch's length from it."""
        moved = 0
        unknown: dict[str, int] = {}
        for source, at in after.items():
            moved += at.offset - before[source].offset
            crossed, length = at.epoch - before[source].epoch, self._epochs.known.get(source)
            if not crossed:
                continue
            if length is None:
                unknown[source] = crossed
            else:
                moved += crossed * length
        if len(unknown) == 1:
            [(source, crossed)] = unknown.items()
            self._infer(source, rest=consumed - moved, crossed=crossed, size=size)
        if unknown or moved == consumed:
            return
        self._report(
            f"the cursor moved from {spell(before)} to {spell(after)}, that is by {moved} tokens, "
            f"but the window's microbatches hold {consumed}",
            moved=moved,
            consumed=consumed,
        )

    def _infer(self, source: str, *, rest: int, crossed: int, size: int) -> None:
        tokens, odd = divmod(rest, crossed)
        if odd or tokens < size or tokens % size:
            self._report(
                f"{source} enters another epoch after {rest} tokens, which is no whole number of "
                f"microbatches of {size}"
            )
            return
        self._epochs.known[source] = tokens
        self._epochs.inferred.add(source)

    def _check_bounds(self, cursor: Cursor, size: int) -> None:
        for source, at in cursor.items():
            length = self._epochs.known.get(source)
            if at.offset % size or (length is not None and at.offset >= length):
                self._report(
                    f"{source} stands at offset {at.offset}, expected a multiple of {size} below the epoch's "
                    f"{length if length is not None else 'length'}"
                )

    def _check_digest(self, cursor: Cursor, state: StateDigests | None) -> None:
        """Check that the digest of the live cursor is that of the cursor beside it."""
        if state is None or state.cursor == digest_of(msgspec.to_builtins(cursor)):
            return
        self._report(
            f"the digest of the live cursor is {state.cursor}, which is not that of the cursor beside it, "
            f"{spell(cursor)}"
        )

    def _report(self, problem: str, **evidence: int) -> None:
        self.findings.add("LG210", problem, where=self.stream.where, evidence=dict(evidence))


class PositionChecker(Checker):
    """LG505: on the branch, epochs × usable tokens + offset equals what was processed of each source."""

    rules: ClassVar[tuple[str, ...]] = ("LG505",)

    def __init__(self, stream: Stream, *, epochs: EpochLengths) -> None:
        super().__init__(stream)
        self._epochs = epochs
        self._last: tuple[SessionStart | Train, LogLine, Track] | None = None
        """The last event that states a cursor, its line and its session."""
        self.coverage: dict[str, dict[str, int | None]] = {}
        """Source to positions processed, distinct tokens, epoch tokens, for the account."""
        self.mix: dict[str, str | None] = {}
        """Source of a mix to the identity of its dataset as the recipe states it, for the account."""

    def on_session_start(self, event: SessionStart) -> None:
        """Note the cursor."""
        self._note(event)

    def on_train(self, event: Train) -> None:
        """Note the cursor."""
        self._note(event)

    def _note(self, event: SessionStart | Train) -> None:
        line, track = self.stream.line, self.stream.track
        if line is not None and track is not None:
            self._last = (event, line, track)

    def finish(self) -> None:
        """Compare the branch's last cursor with its microbatches, and report coverage."""
        if self._last is None:
            return
        event, line, track = self._last
        cursor, microbatches, where = event.cursor, event.microbatches, place(line)
        size = track.start.tokens_per_microbatch
        self.mix = identities_in_mix(track)
        for source, at in cursor.items():
            length = self._epochs.known.get(source)
            if length is None and at.epoch:
                self.findings.skip("LG505", f"the length of an epoch of {source} is not known")
                return
            self.coverage[source] = {
                "positions_processed": at.epoch * (length or 0) + at.offset,
                "distinct_tokens": _distinct(at, length),
                "epoch_tokens": length,
                "epochs": at.epoch,
            }
        lawful = microbatches_by_source(track, start=0, count=microbatches)
        if lawful is None or set(lawful) != set(cursor):
            self._compare(cursor, microbatches, size=size, where=where)
            return
        for source, count in lawful.items():
            self._compare({source: cursor[source]}, count, size=size, where=where)

    def _compare(self, cursor: Cursor, microbatches: int, *, size: int, where: str) -> None:
        processed = sum(self.coverage[source]["positions_processed"] or 0 for source in cursor)
        if processed == microbatches * size:
            return
        self.findings.add(
            "LG505",
            f"the cursor {spell(cursor)} stands for {processed} tokens, but {microbatches} microbatches of "
            f"{size} hold {microbatches * size}",
            where=where,
            evidence={"cursor": processed, "microbatches": microbatches * size},
        )


def _distinct(at: Position, length: int | None) -> int:
    return at.offset if length is None or not at.epoch else length
