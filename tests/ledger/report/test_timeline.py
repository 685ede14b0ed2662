from __future__ import annotations

import dataclasses
import io
import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile, summarize
from ledger.cli.output import screen
from ledger.report.timeline import (
    ASCII,
    UNICODE,
    Lane,
    Screen,
    lanes_of_summary,
    lanes_of_verdict,
    timeline,
)

HISTORY = [
    Lane(
        session=1,
        start="fresh",
        parent=None,
        first=0,
        last=500,
        branch_end=400,
        checkpoints=[200, 400],
        status="no end",
    ),
    Lane(
        session=2,
        start="auto",
        parent=1,
        first=400,
        last=700,
        branch_end=None,
        checkpoints=[600],
        status="interrupted",
    ),
    Lane(
        session=3,
        start="resume",
        parent=1,
        first=400,
        last=1000,
        branch_end=1000,
        checkpoints=[600, 800, 1000],
        status="completed",
    ),
]
GOLDEN = Path(__file__).parents[2] / "golden" / "timeline"


def drawn(lanes: list[Lane], *, width: int = 80, glyphs=UNICODE) -> list[str]:
    return [line.text for line in timeline(lanes, screen=Screen(width, glyphs))]


@pytest.mark.parametrize(
    ("name", "width", "glyphs"), [("80", 80, UNICODE), ("200", 200, UNICODE), ("80-ascii", 80, ASCII)]
)
def test_a_history_is_drawn(name, width, glyphs):
    text = "\n".join(drawn(HISTORY, width=width, glyphs=glyphs)) + "\n"
    assert text == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert glyphs is UNICODE or text.isascii()


@pytest.mark.parametrize("width", [80, 200])
def test_the_drawing_takes_the_width_there_is(width):
    lines = drawn(HISTORY, width=width)
    assert width - 12 <= max(map(len, lines)) <= width
    assert sum("━" * (width // 16) in line for line in lines) == 2


def test_a_screen_too_narrow_still_shows_something():
    assert len(drawn(HISTORY, width=10)) > 6


def test_what_is_superseded_and_where_it_was_taken_up_is_seen():
    first, second, third = drawn(HISTORY)[2:5]
    fork = third.index("└")
    assert first[:fork].count("┄") == 0
    assert "┄" in first[fork:]
    assert "━" not in second
    assert second.index("└") == fork
    assert "┄" not in third


@pytest.mark.parametrize(
    "lanes", [[], HISTORY[:1], [dataclasses.replace(lane, first=5, last=5) for lane in HISTORY]]
)
def test_where_there_is_nothing_to_compare_nothing_is_drawn(lanes):
    assert drawn(lanes) == []


def test_thousands_of_sessions_stay_a_screenful_and_are_counted():
    lanes = [
        Lane(session=n, start="auto", parent=n - 1 or None, first=n * 10, last=n * 10 + 15,
             branch_end=None if n % 3 else n * 10 + 10, checkpoints=[n * 10 + 10], status="interrupted")
        for n in range(1, 5001)
    ]  # fmt: skip
    lines = drawn(lanes)
    assert len(lines) < 36
    assert all(len(line) <= 80 for line in lines)
    (middle,) = [line for line in lines if "4 to 4980" in line]
    assert f"{len([n for n in range(4, 4981) if n % 3 == 0])} of 4977 on the branch" in middle


def test_a_damaged_history_is_drawn_too():
    chance = random.Random(0)
    numbers = [0, 1, 7, 2**53 - 1]

    def lane() -> Lane:
        session, first, last, end, kept = chance.choices(numbers, k=5)
        return Lane(
            session=session,
            start="auto",
            parent=chance.choice([None, 1]),
            first=first,
            last=last,
            branch_end=chance.choice([None, end]),
            checkpoints=[kept],
            status="no end",
        )

    for _ in range(200):
        assert all(len(line) <= 120 for line in drawn([lane(), lane(), lane()]))


def test_a_verdict_and_a_summary_show_the_same_history(healthy_run: Callable[[str], Path]):
    run = healthy_run("sparse")
    lanes = lanes_of_verdict(reconcile(run))
    assert lanes == lanes_of_summary(summarize(run))
    assert len(lanes) > 2
    assert any(lane.branch_end is None for lane in lanes)
    assert lanes_of_verdict(reconcile(healthy_run("resumed")))[1].parent == 1


def test_a_run_at_work_has_no_killed_session(healthy_run: Callable[[str], Path]):
    verdict = reconcile(healthy_run("interrupted"))
    running = verdict.model_copy(update={"status": "running"})
    assert [lane.end_kind for lane in lanes_of_verdict(verdict)] == ["no_end"]
    assert [lane.end_kind for lane in lanes_of_verdict(running)] == ["running"]


@pytest.mark.parametrize(
    ("encoding", "columns", "expected"),
    [
        ("utf-8", "200", Screen(200, UNICODE)),
        ("latin-1", "0", Screen(80, ASCII)),
        ("ascii", "9", Screen(80, ASCII)),
    ],
)
def test_the_screen_is_what_standard_output_shows(encoding, columns, expected, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    monkeypatch.setenv("COLUMNS", columns)
    assert screen() == expected
