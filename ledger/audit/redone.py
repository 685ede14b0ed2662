"""LG306: redone work agrees. Every real interruption is an experiment in repeatability, for free.

A session is compared at each place with the last earlier one that logged it under the same conditions, and with the
last of all if that ran under others. What agrees with its predecessor agrees with everything before it, so however
often a stretch is done again, the cost stays that of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ledger.audit.causes import cause_of_batches, cause_of_measure
from ledger.audit.evidence import differing_measures, train_at
from ledger.audit.stream import Checker, Stream
from ledger.audit.track import SkipRow, Track
from ledger.records.documents import Severity
from ledger.records.layout import LOG

__all__ = ["RedoneChecker"]

COLUMNS = ("microbatches", "window_start", "chain", "measured", "step", "attempts")
Rows = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class _Table:
    """The train events of all places that more than one session reached, session by session."""

    columns: dict[str, Rows]
    track: Rows
    """Index of the session's track."""
    row: Rows
    """Row in that track."""
    conditions: Rows
    """Number of the conditions under which the session ran."""

    def neighbours(self, *keys: Rows, rows: Rows) -> tuple[Rows, Rows]:
        """Return, of these rows, each pair of neighbours with equal keys, the earlier session's first."""
        order = rows[np.lexsort((self.track[rows], *reversed([key[rows] for key in keys])))]
        one, other = order[:-1], order[1:]
        same = self.track[one] != self.track[other]
        for key in keys:
            same &= key[one] == key[other]
        return one[same], other[same]

    def pairs(self, *names: str, rows: Rows) -> tuple[Rows, Rows]:
        """Return what is to be compared: neighbours under one condition, and those under two."""
        keys = [self.columns[name] for name in names]
        alike = self.neighbours(self.conditions, *keys, rows=rows)
        all_of_them = self.neighbours(*keys, rows=rows)
        unlike = self.conditions[all_of_them[0]] != self.conditions[all_of_them[1]]
        return (
            np.concatenate([alike[0], all_of_them[0][unlike]]),
            np.concatenate([alike[1], all_of_them[1][unlike]]),
        )

    def differ(self, one: Rows, other: Rows, *names: str) -> NDArray[np.bool_]:
        """Tell which pairs differ in any of these columns."""
        unequal = np.zeros(one.size, dtype=np.bool_)
        for name in names:
            unequal |= self.columns[name][one] != self.columns[name][other]
        return unequal


class RedoneChecker(Checker):
    """Compares each session with what earlier ones logged of the same microbatches."""

    rules: ClassVar[tuple[str, ...]] = ("LG306",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self.compared = 0
        """Places at which a session was compared with an earlier one."""

    def finish(self) -> None:
        """Go through the places that more than one session reached."""
        tracks = [track for _, track in sorted(self.stream.tracks.items())]
        stretches = _overlaps(self._spans(tracks))
        if not stretches.size:
            self.findings.exempt("LG306", "no work was done twice")
            return
        table = _table_of(tracks, stretches)
        first = self._compare_data(table, tracks)
        self._compare_measures(table, tracks, first)
        self._compare_skips(tracks)
        if not self.compared:
            self.findings.skip("LG306", "not testable: no place was logged by both sides of redone work")

    def _spans(self, tracks: list[Track]) -> list[tuple[int, int]]:
        ends = {session.number: session.last.microbatches for session in self.stream.history.sessions}
        spans = [(track.start.microbatches, ends.get(track.number, 0)) for track in tracks]
        return sorted(span for span in spans if span[0] < span[1])

    def _compare_data(self, table: _Table, tracks: list[Track]) -> dict[tuple[int, int], int]:
        """Report where data differs; returns the first such place of each pair of sessions, in microbatches."""
        one, other = table.pairs("microbatches", rows=np.arange(table.track.size, dtype=np.uint64))
        self.compared = one.size
        first: dict[tuple[int, int], int] = {}
        for pair, before, later in _first_of_each(table, one, other, table.differ(one, other, "chain")):
            row = int(table.row[later])
            first[pair] = tracks[pair[1]].rows.microbatches[row]
            problem = self._data_problem(tracks[pair[0]], int(table.row[before]), tracks[pair[1]], row)
            self._report(tracks[pair[0]], tracks[pair[1]], row, problem)
        return first

    def _data_problem(self, earlier: Track, earlier_row: int, later: Track, row: int) -> str:
        run_dir = self.stream.files.run_dir
        first, second = train_at(run_dir, earlier, earlier_row), train_at(run_dir, later, row)
        cause = ""
        if first is not None and second is not None:
            cause = "; " + cause_of_batches(second, first, of=earlier)
        microbatches = later.rows.microbatches[row]
        return f"data_chain differs after {microbatches} microbatches: other batches were read than before{cause}"

    def _compare_measures(
        self, table: _Table, tracks: list[Track], data_differs: dict[tuple[int, int], int]
    ) -> None:
        """Report where other things were measured of the same data, in windows that hold the same microbatches."""
        # An interrupted session may end before the attempt that the other side made of the same microbatches.
        whole = np.flatnonzero(_are_whole(table, tracks)).astype(np.uint64)
        one, other = table.pairs("microbatches", "window_start", rows=whole)
        differing = table.differ(one, other, "measured", "step", "attempts")
        differing &= ~table.differ(one, other, "chain")
        for pair, before, later in _first_of_each(table, one, other, differing):
            earlier_row, row = int(table.row[before]), int(table.row[later])
            if pair in data_differs and tracks[pair[1]].rows.microbatches[row] > data_differs[pair]:
                continue  # it was told that the data differs
            problem = self._problem(tracks[pair[0]], earlier_row, tracks[pair[1]], row)
            self._report(tracks[pair[0]], tracks[pair[1]], row, problem)

    def _problem(self, earlier: Track, earlier_row: int, later: Track, row: int) -> str:
        run_dir = self.stream.files.run_dir
        first, second = train_at(run_dir, earlier, earlier_row), train_at(run_dir, later, row)
        if first is None or second is None:
            return "what was measured differs"
        if (first.step, first.attempts) != (second.step, second.attempts):
            return f"step is {second.step} of {second.attempts} attempts, before {first.step} of {first.attempts}"
        if first.batches != second.batches:
            return "other batches are listed than before, although data_chain agrees: one of the lists was changed"
        name, before, after = next(differing_measures(first, second), ("a measure", "?", "?"))
        cause = cause_of_measure(name, track=later, step=second.step)
        return f"{name} is {after}, before {before}, although the batch digests agree, {cause}"

    def _compare_skips(self, tracks: list[Track]) -> None:
        """Compare each skipped attempt with the last one of that number, under the same conditions and of all."""
        known: dict[tuple[object, int], tuple[Track, SkipRow]] = {}
        for track in tracks:
            reported: set[int] = set()
            for skip in track.skips:
                for key in ((_conditions(track), skip.attempts), (None, skip.attempts)):
                    earlier, before = known.get(key, (track, skip))
                    known[key] = (track, skip)
                    if before.measured != skip.measured and earlier.number not in reported:
                        reported.add(earlier.number)
                        self._report_skip(earlier, before, track, skip)

    def _report_skip(self, earlier: Track, before: SkipRow, later: Track, skip: SkipRow) -> None:
        problem = (
            f"attempt {skip.attempts} was skipped again, but with another reason, loss, norm or scale: compare "
            f"the overflow events seq {before.seq} and {skip.seq}; where the batches agree, look at the weights"
        )
        self._add(earlier, later, skip.step, skip.seq, problem)

    def _report(self, earlier: Track, later: Track, row: int, problem: str) -> None:
        self._add(earlier, later, later.rows.step[row], later.rows.seq[row], problem)

    def _add(self, earlier: Track, later: Track, step: int, seq: int, problem: str) -> None:
        severity, weakened = _severity(earlier, later)
        self.findings.add(
            "LG306",
            f"session {later.number} redid work of session {earlier.number}; at step {step} "
            f"{problem}{weakened}",
            where=f"{LOG} seq {seq}",
            severity=severity,
            evidence={"sessions": [earlier.number, later.number], "step": step},
        )


def _severity(earlier: Track, later: Track) -> tuple[Severity, str]:
    if earlier.start.identity_sha256 != later.start.identity_sha256:
        return "hint", " (the two have other identities)"
    if earlier.start.environment_sha256 != later.start.environment_sha256:
        return "hint", " (the two ran in other environments)"
    if not (_is_deterministic(earlier) and _is_deterministic(later)):
        return "hint", " (the recipe does not declare deterministic execution)"
    return "error", ""


def _conditions(track: Track) -> tuple[str, str, bool]:
    """Return what decides whether two sessions must agree bit for bit."""
    return track.start.identity_sha256, track.start.environment_sha256, _is_deterministic(track)


def _is_deterministic(track: Track) -> bool:
    section = None if track.sections is None else track.sections.determinism
    return section is not None and section.deterministic


def _overlaps(spans: list[tuple[int, int]]) -> Rows:
    """Return the stretches of microbatches that more than one span holds, as rows (begin, end), disjoint, in order."""
    stretches: list[list[int]] = []
    reached = 0
    for begin, end in spans:
        if begin < min(end, reached):
            if stretches and begin <= stretches[-1][1]:
                stretches[-1][1] = max(stretches[-1][1], min(end, reached))
            else:
                stretches.append([begin, min(end, reached)])
        reached = max(reached, end)
    return np.array(stretches, dtype=np.uint64).reshape(-1, 2)


def _table_of(tracks: list[Track], stretches: Rows) -> _Table:
    """Gather the rows that lie on the stretches, and no others: those of one session alone need no memory."""
    parts: dict[str, list[Rows]] = {name: [] for name in (*COLUMNS, "track", "row", "conditions")}
    known: dict[tuple[str, str, bool], int] = {}
    for index, track in enumerate(tracks):
        at = np.frombuffer(track.rows.microbatches, dtype=np.uint64)
        stretch = np.searchsorted(stretches[:, 0], at, side="left") - 1
        held = np.flatnonzero((stretch >= 0) & (at <= stretches[stretch, 1]))
        for name in COLUMNS:
            parts[name].append(np.frombuffer(getattr(track.rows, name), dtype=np.uint64)[held])
        parts["track"].append(np.full(held.size, index, dtype=np.uint64))
        parts["row"].append(held.astype(np.uint64))
        number = known.setdefault(_conditions(track), len(known))
        parts["conditions"].append(np.full(held.size, number, dtype=np.uint64))
    joined = {name: np.concatenate(columns) for name, columns in parts.items()}
    return _Table(
        columns={name: joined[name] for name in COLUMNS},
        track=joined["track"],
        row=joined["row"],
        conditions=joined["conditions"],
    )


def _are_whole(table: _Table, tracks: list[Track]) -> NDArray[np.bool_]:
    """Tell which rows end with whole accumulation windows."""
    starts = [(track.start.microbatches, track.start.attempts, track.start.accumulation) for track in tracks]
    of_track: NDArray[Any] = np.array(starts, dtype=np.int64)[table.track.astype(np.intp)]
    microbatches = table.columns["microbatches"].astype(np.int64) - of_track[:, 0]
    attempts = table.columns["attempts"].astype(np.int64) - of_track[:, 1]
    whole: NDArray[np.bool_] = microbatches == attempts * of_track[:, 2]
    return whole


def _first_of_each(
    table: _Table, one: Rows, other: Rows, chosen: NDArray[np.bool_]
) -> Iterator[tuple[tuple[int, int], int, int]]:
    """Yield, of the chosen pairs of rows, the first of each pair of sessions, in the order of the log."""
    first: dict[tuple[int, int], tuple[int, int]] = {}
    for before, after in zip(one[chosen].tolist(), other[chosen].tolist(), strict=True):
        pair = (int(table.track[before]), int(table.track[after]))
        if pair not in first or after < first[pair][1]:
            first[pair] = (before, after)
    for pair, (before, after) in sorted(first.items(), key=lambda entry: (entry[0][1], entry[0][0])):
        yield pair, before, after
