"""A long series of measurements in bounded memory, its extremes kept.

The points of each session lie in buckets of equal width in `step`; of each bucket the first, least, greatest and last
point stay. Where there are too many buckets the width doubles and neighbours merge, so no extreme is ever lost. A
bucket ends where a checkpoint was captured, since that is where a later session may take off and supersede the rest;
only when checkpoints are many do the older of these ends go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ledger.history import Segment

__all__ = ["KEPT_BUCKETS", "Piece", "Point", "Series"]

KEPT_BUCKETS: Final = 400
"""Buckets of a series, of all sessions together."""

_WIDEST: Final = 1 << 53


class Point(NamedTuple):
    """One measurement and where it stands."""

    step: int
    microbatches: int
    value: float


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What is kept of one session's points on one side of where a later session took off."""

    session: int
    on_branch: bool
    points: list[Point]
    """In the order in which they were measured; never empty."""


class _Bucket:
    """The extremes of neighbouring points."""

    __slots__ = ("first", "greatest", "is_cut", "key", "last", "least")

    def __init__(self, key: int, point: Point) -> None:
        self.key = key
        self.first = self.least = self.greatest = self.last = point
        self.is_cut = False

    def take(self, point: Point) -> None:
        self.last = point
        if point.value < self.least.value:
            self.least = point
        elif point.value > self.greatest.value:
            self.greatest = point

    def merge(self, later: _Bucket) -> None:
        self.last, self.is_cut = later.last, later.is_cut
        if later.least.value < self.least.value:
            self.least = later.least
        if later.greatest.value > self.greatest.value:
            self.greatest = later.greatest

    def points(self) -> list[Point]:
        between = sorted((self.least, self.greatest), key=lambda point: point.microbatches)
        return list(dict.fromkeys((self.first, *between, self.last)))


class Series:
    """Points of one measurement, session by session in the order of the log. All values are finite."""

    def __init__(self, *, limit: int = KEPT_BUCKETS) -> None:
        self._limit = limit
        self._width = 1
        self._buckets = 0
        self._sessions: dict[int, list[_Bucket]] = {}
        self.count = 0
        """Points that were added, exactly."""

    def add(self, session: int, point: Point) -> None:
        """Add a session's next point."""
        self.count += 1
        buckets = self._sessions.get(session)
        if buckets is None:
            buckets = self._sessions[session] = []
        key = point.step // self._width
        if buckets and buckets[-1].key == key and not buckets[-1].is_cut:
            buckets[-1].take(point)
            return
        buckets.append(_Bucket(key, point))
        self._buckets += 1
        if self._buckets > self._limit:
            self._make_room()

    def cut(self, session: int, microbatches: int) -> None:
        """Note that a checkpoint was captured at so many microbatches: a later session may take off there."""
        buckets = self._sessions.get(session)
        if buckets and buckets[-1].last.microbatches <= microbatches:
            buckets[-1].is_cut = True

    def pieces(self, branch: Iterable[Segment]) -> list[Piece]:
        """Return the points that are kept, each session's on the branch and off it apart."""
        ends = {segment.session.number: segment.end.microbatches for segment in branch}
        pieces = []
        for session, buckets in self._sessions.items():
            points = [point for bucket in buckets for point in bucket.points()]
            end = ends.get(session, -1)
            for on_branch in (True, False):
                part = [point for point in points if (point.microbatches <= end) is on_branch]
                if part:
                    pieces.append(Piece(session=session, on_branch=on_branch, points=part))
        return pieces

    def _make_room(self) -> None:
        while self._buckets > self._limit // 2 and self._width < _WIDEST:
            self._width *= 2
            self._merge_neighbours()
            if self._buckets > self._limit:
                self._forget_cuts()
        self._limit = max(self._limit, 2 * self._buckets)  # as many sessions as that have a bucket each

    def _forget_cuts(self) -> None:
        for buckets in self._sessions.values():
            cut = [bucket for bucket in buckets if bucket.is_cut]
            for bucket in cut[:-1]:
                bucket.is_cut = False

    def _merge_neighbours(self) -> None:
        self._buckets = 0
        for session, buckets in self._sessions.items():
            merged: list[_Bucket] = []
            for bucket in buckets:
                bucket.key = bucket.first.step // self._width
                if merged and merged[-1].key == bucket.key and not merged[-1].is_cut:
                    merged[-1].merge(bucket)
                else:
                    merged.append(bucket)
            self._sessions[session] = merged
            self._buckets += len(merged)
