"""LG211: no batch recurs within an epoch of the current branch, and a repeating recipe repeats exactly.

Works on the first 8 bytes of each microbatch digest, in the order of the branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ledger.audit.corpus import Corpus, RunReader
from ledger.audit.positions import EpochLengths
from ledger.audit.stream import Checker, Stream
from ledger.audit.track import Track
from ledger.records.documents import Severity
from ledger.records.layout import LOG
from ledger.records.parts import Position

__all__ = ["RecurrenceChecker", "branch_batches"]

REPORTED_STRETCHES = 20


def branch_batches(stream: Stream) -> NDArray[np.uint64] | str:
    """Return the digests along the current branch, or why they are not all known."""
    parts: list[NDArray[np.uint64]] = []
    for segment in stream.history.branch():
        track = stream.track_of(segment.session.number)
        if track is None or track.is_damaged:
            return f"session {segment.session.number} is damaged, so its batches are not all known"
        wanted = segment.end.microbatches - track.start.microbatches
        parts.append(np.frombuffer(track.batches, dtype=np.uint64)[: max(0, wanted)])
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Microbatches that recur in a row: `count` of them from `later` on are those from `earlier` on."""

    earlier: int
    later: int
    count: int


class RecurrenceChecker(Checker):
    """LG211 on the current branch."""

    rules: ClassVar[tuple[str, ...]] = ("LG211",)

    def __init__(self, stream: Stream, *, epochs: EpochLengths, corpus: Corpus) -> None:
        super().__init__(stream)
        self._epochs = epochs
        self._corpus = corpus

    def finish(self) -> None:
        """Go through the branch epoch by epoch."""
        branch = self.stream.history.branch()
        first = self.stream.track_of(branch[0].session.number) if branch else None
        if first is None:
            return
        if len(first.start.cursor) != 1:
            self.findings.skip(
                "LG211", "the run reads a mix of sources; an epoch of one is no stretch of the log"
            )
            return
        batches = branch_batches(self.stream)
        if isinstance(batches, str):
            self.findings.skip("LG211", batches)
            return
        ((source, at),) = first.start.cursor.items()
        size = first.start.tokens_per_microbatch
        length = self._epochs.known.get(source)
        per_epoch = None if length is None else length // size
        offset = at.offset // size
        for begin, end, epoch in _epochs(batches.size, per_epoch=per_epoch, offset=offset, epoch=at.epoch):
            self._check_epoch(batches, begin, end, epoch=epoch, track=first)
        repeat = first.sections.data.repeat if first.sections and first.sections.data else None
        if repeat is not None and not offset:
            self._check_repetition(batches, repeat)

    def _check_epoch(
        self, batches: NDArray[np.uint64], begin: int, end: int, *, epoch: int, track: Track
    ) -> None:
        for stretch in _stretches(batches[begin:end])[:REPORTED_STRETCHES]:
            severity = self._judge(stretch, track, epoch=epoch)
            explained = {
                "error": "the reader went back",
                "hint": "the text is the same at both places",
                "missing": "without the dataset nobody can say whether the text is the same there",
            }[severity]
            self.findings.add(
                "LG211",
                f"{stretch.count} microbatches from number {begin + stretch.later} of the branch on are "
                f"those from number {begin + stretch.earlier} on, in one epoch: {explained}",
                where=f"{LOG}, microbatch {begin + stretch.later} of the branch",
                severity=severity,
                evidence={
                    "epoch": epoch,
                    "first": begin + stretch.earlier,
                    "again": begin + stretch.later,
                    "count": stretch.count,
                },
            )

    def _judge(self, stretch: Stretch, track: Track, *, epoch: int) -> Severity:
        """Tell duplicate text from a replay, by reading both places where the dataset is at hand."""
        reader = RunReader.of(track, corpus=self._corpus)
        if isinstance(reader, str):
            return "missing" if stretch.count == 1 else "error"
        size = track.start.tokens_per_microbatch
        first = next(iter(track.start.cursor.values()))
        offset = first.offset // size if epoch == first.epoch else 0
        places = [Position(epoch, (offset + index) * size) for index in (stretch.earlier, stretch.later)]
        earlier, later = (reader.digest_at(place) for place in places)
        return "hint" if isinstance(earlier, str) and earlier == later else "error"

    def _check_repetition(self, batches: NDArray[np.uint64], repeat: int) -> None:
        first = batches[:repeat]
        for begin in range(repeat, batches.size, repeat):
            again = batches[begin : begin + repeat]
            unequal = np.flatnonzero(again != first[: again.size])
            if unequal.size:
                index = int(unequal[0])
                self.findings.add(
                    "LG211",
                    f"the recipe repeats its first {repeat} microbatches, but number {begin + index} of the "
                    f"branch is not the one of number {index}",
                    where=f"{LOG}, microbatch {begin + index} of the branch",
                    evidence={"epoch": begin // repeat, "index": index},
                )
                return


def _epochs(total: int, *, per_epoch: int | None, offset: int, epoch: int) -> list[tuple[int, int, int]]:
    """Cut the branch into (begin, end, epoch); it starts `offset` microbatches into an epoch."""
    if per_epoch is None or per_epoch < 1:
        return [(0, total, epoch)]
    cuts = []
    begin, end = 0, max(1, per_epoch - offset)
    while begin < total:
        cuts.append((begin, min(end, total), epoch))
        begin, end, epoch = end, end + per_epoch, epoch + 1
    return cuts


def _stretches(digests: NDArray[Any]) -> list[Stretch]:
    """Return where digests recur, neighbours with one distance joined."""
    if digests.size < 2:
        return []
    order = np.argsort(digests, kind="stable")
    same = np.flatnonzero(digests[order][1:] == digests[order][:-1])
    if not same.size:
        return []
    pairs = sorted((int(order[index + 1]), int(order[index])) for index in same)
    stretches: list[Stretch] = []
    for later, earlier in pairs:
        last = stretches[-1] if stretches else None
        if last and later == last.later + last.count and earlier == last.earlier + last.count:
            stretches[-1] = Stretch(earlier=last.earlier, later=last.later, count=last.count + 1)
        else:
            stretches.append(Stretch(earlier=earlier, later=later, count=1))
    return stretches
