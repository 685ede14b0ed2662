"""What is left out of a long series lies between what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from ledger.audit.series import Piece, Point, Series

LIMIT = 8
VALUES = st.floats(min_value=-1e300, max_value=1e300)
STEPS = st.lists(st.tuples(st.integers(0, 9), VALUES, st.booleans()), min_size=1, max_size=80)
"""Of each point: how far the step moves on, its value, whether a checkpoint follows."""


class Branch:
    """A segment of session 1 that ends at so many microbatches."""

    def __init__(self, microbatches: int, *, session: int = 1) -> None:
        self.session = self
        self.number = session
        self.end = self
        self.microbatches = microbatches


def pieces_of(series: Series, *segments: Branch) -> list[Piece]:
    return series.pieces(segments)  # type: ignore[arg-type]


def points_of(moves: list[tuple[int, float, bool]]) -> Iterator[tuple[Point, bool]]:
    step = 0
    for index, (move, value, is_cut) in enumerate(moves):
        step += move
        yield Point(step, index + 1, value), is_cut


def filled(sessions: list[list[tuple[int, float, bool]]]) -> tuple[Series, dict[int, list[Point]]]:
    series, points = Series(limit=LIMIT), {}
    for number, moves in enumerate(sessions, start=1):
        points[number] = [point for point, _ in points_of(moves)]
        for point, is_cut in points_of(moves):
            series.add(number, point)
            if is_cut:
                series.cut(number, point.microbatches)
    return series, points


@given(st.lists(STEPS, min_size=1, max_size=3))
def test_the_extremes_of_every_bucket_and_of_the_whole_survive(sessions):
    series, points = filled(sessions)
    kept: dict[int, list[Point]] = {number: [] for number in points}
    for piece in pieces_of(series):
        kept[piece.session] += piece.points
    everything = [point.value for all_of_one in points.values() for point in all_of_one]
    shown = [point.value for all_of_one in kept.values() for point in all_of_one]
    assert (min(shown), max(shown)) == (min(everything), max(everything))
    assert series.count == len(everything)
    width = series._width
    for number, all_of_one in points.items():
        assert (kept[number][0], kept[number][-1]) == (all_of_one[0], all_of_one[-1])
        assert set(kept[number]) <= set(all_of_one)
        for key, group in groupby(all_of_one, key=lambda point: point.step // width):
            wanted = [point.value for point in group]
            found = [point.value for point in kept[number] if point.step // width == key]
            assert (min(found), max(found)) == (min(wanted), max(wanted))


@given(st.lists(STEPS, min_size=1, max_size=3))
def test_what_is_kept_is_bounded_and_in_order(sessions):
    series, points = filled(sessions)
    found = pieces_of(series)
    assert sum(len(piece.points) for piece in found) <= 4 * max(LIMIT, 2 * 2 * len(points))
    for piece in found:
        assert [point.microbatches for point in piece.points] == sorted(p.microbatches for p in piece.points)


@given(STEPS, st.integers(1, 80), STEPS)
def test_where_a_session_takes_off_from_the_last_checkpoint_both_sides_keep_their_extremes(
    moves, place, later
):
    place = min(place, len(moves))
    cut_once = [(move, value, index + 1 == place) for index, (move, value, _) in enumerate(moves)]
    series, points = filled([cut_once, later])
    found = pieces_of(series, Branch(place), Branch(1_000, session=2))
    for on_branch, side in ((True, points[1][:place]), (False, points[1][place:])):
        kept = [p.value for piece in found if piece.session == 1 and piece.on_branch is on_branch
                for p in piece.points]  # fmt: skip
        values = [point.value for point in side]
        assert (min(kept, default=0), max(kept, default=0)) == (
            min(values, default=0),
            max(values, default=0),
        )


def test_as_many_sessions_as_there_are_have_a_bucket_each():
    series = Series(limit=LIMIT)
    for number in range(1, 1_000):
        for step in range(3):
            series.add(number, Point(1_000 * step, step, float(step)))
    found = pieces_of(series)
    assert len(found) == 999
    assert all(len(piece.points) <= 3 for piece in found)


def test_a_spike_before_a_checkpoint_is_not_hidden_by_a_greater_one_behind_it():
    series = Series(limit=LIMIT)
    for index in range(1, 101):
        series.add(1, Point(index, index, {49: 5.0, 51: 9.0}.get(index, 0.0)))
        if index == 50:
            series.cut(1, 50)
    branch, lost = pieces_of(series, Branch(50))
    assert max(point.value for point in branch.points) == 5.0
    assert max(point.value for point in lost.points) == 9.0
