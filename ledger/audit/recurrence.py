"""LG211: no batch recurs within an epoch of the current branch, and orders are new or repeated as the recipe says.

Works on the first 8 bytes of each microbatch digest, in the order of the branch; of a mix source by source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ledger.audit.corpus import Corpus, RunReader
from ledger.audit.positions import EpochLengths
from ledger.audit.stream import Checker, Stream
from ledger.audit.track import Track
from ledger.dataset.rule import ReadingRule
from ledger.records.documents import Severity
from ledger.records.layout import LOG

__all__ = ["RecurrenceChecker", "branch_batches"]

REPORTED_STRETCHES = 20
EXPLANATIONS: dict[Severity, str] = {
    "error": "the reader went back",
    "hint": "the text is the same at both places",
    "missing": "without the dataset nobody can say whether the text is the same there",
}


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


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What the branch read of one source in one epoch."""

    source: str
    number: int
    indices: NDArray[np.intp]
    """Its microbatches, counted on the branch."""
    is_whole: bool


class RecurrenceChecker(Checker):
    """LG211 on the current branch."""

    rules: ClassVar[tuple[str, ...]] = ("LG211",)

    def __init__(self, stream: Stream, *, epochs: EpochLengths, corpus: Corpus) -> None:
        super().__init__(stream)
        self._lengths = epochs
        self._corpus = corpus
        self._batches: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)

    def finish(self) -> None:
        """Go through the branch epoch by epoch, source by source."""
        branch = self.stream.history.branch()
        first = self.stream.track_of(branch[0].session.number) if branch else None
        if first is None:
            return
        rule, batches = first.reading, branch_batches(self.stream)
        if isinstance(batches, str):
            self.findings.skip("LG211", batches)
            return
        if isinstance(rule, str):
            self.findings.skip("LG211", rule)
            return
        self._batches = batches
        for source, indices in _by_source(rule, first, total=batches.size).items():
            epochs = list(self._epochs(source, indices, track=first))
            for epoch in epochs:
                self._check_epoch(epoch, track=first)
            if rule.shuffle is not None and rule.repeat is None:
                self._check_orders([epoch for epoch in epochs if epoch.is_whole], track=first)
        if rule.repeat is not None and not first.start.microbatches:
            self._check_repetition(batches, rule.repeat)

    def _epochs(self, source: str, indices: NDArray[np.intp], *, track: Track) -> Iterator[Epoch]:
        """Cut a source's microbatches on the branch, which may start inside an epoch."""
        at, size = track.start.cursor[source], track.start.tokens_per_microbatch
        length = self._lengths.known.get(source)
        if length is None or length < size:
            yield Epoch(source=source, number=at.epoch, indices=indices, is_whole=False)
            return
        per_epoch = length // size
        begin, end, number = 0, max(1, per_epoch - at.offset // size), at.epoch
        while begin < indices.size:
            held = indices[begin:end]
            yield Epoch(source=source, number=number, indices=held, is_whole=held.size == per_epoch)
            begin, end, number = end, end + per_epoch, number + 1

    def _check_epoch(self, epoch: Epoch, *, track: Track) -> None:
        for stretch in _stretches(self._batches[epoch.indices])[:REPORTED_STRETCHES]:
            earlier, later = int(epoch.indices[stretch.earlier]), int(epoch.indices[stretch.later])
            severity = self._judge([(earlier, later)], track, is_chance=stretch.count == 1)
            self.findings.add(
                "LG211",
                f"{stretch.count} microbatches from number {later} of the branch on are those from number "
                f"{earlier} on, in one epoch: {EXPLANATIONS[severity]}",
                where=_place(later),
                severity=severity,
                evidence={"epoch": epoch.number, "first": earlier, "again": later, "count": stretch.count},
            )

    def _check_orders(self, epochs: list[Epoch], *, track: Track) -> None:
        """Check that no two shuffled epochs of a source had the same order throughout."""
        seen: dict[bytes, Epoch] = {}
        for epoch in epochs:
            before = seen.setdefault(self._batches[epoch.indices].tobytes(), epoch)
            if before is epoch:
                continue
            pairs = list(zip(before.indices.tolist(), epoch.indices.tolist(), strict=True))
            severity = self._judge(pairs, track, is_chance=len(pairs) == 1)
            self.findings.add(
                "LG211",
                f"epochs {before.number} and {epoch.number} of {epoch.source} were read in the same order, "
                f"but the recipe shuffles: {EXPLANATIONS[severity]}",
                where=_place(int(epoch.indices[0])),
                severity=severity,
                evidence={"first": before.number, "again": epoch.number, "microbatches": len(pairs)},
            )

    def _judge(self, pairs: list[tuple[int, int]], track: Track, *, is_chance: bool) -> Severity:
        """Tell what the data explains from a replay, by reading both places where the dataset is at hand."""
        reader = RunReader.of(track, corpus=self._corpus, scattered=True)
        if isinstance(reader, str):
            return "missing" if is_chance else "error"
        for earlier, later in pairs:
            digest = reader.digest_of(earlier)
            if not isinstance(digest, str) or digest != reader.digest_of(later):
                return "error"
        return "hint"

    def _check_repetition(self, batches: NDArray[np.uint64], repeat: int) -> None:
        first = batches[:repeat]
        for begin in range(repeat, batches.size, repeat):
            again = batches[begin : begin + repeat]
            unequal = np.flatnonzero(again != first[: again.size])
            if unequal.size:
                index = int(unequal[0])
                self.findings.add(
                    "LG211",
                    f"the recipe repeats its first {repeat} microbatches, but number {begin + index} of "
                    f"the branch is not the one of number {index}",
                    where=_place(begin + index),
                    evidence={"epoch": begin // repeat, "index": index},
                )
                return


def _place(microbatch: int) -> str:
    return f"{LOG}, microbatch {microbatch} of the branch"


def _by_source(rule: ReadingRule, track: Track, *, total: int) -> dict[str, NDArray[np.intp]]:
    """Return which microbatches of the branch read each source."""
    if rule.law is None:
        return {source: np.arange(total) for source in track.start.cursor}
    choices = rule.law.choices(track.start.microbatches, count=total)
    return {source: np.flatnonzero(choices == place) for place, source in enumerate(rule.law.names)}


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
