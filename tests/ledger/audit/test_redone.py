"""LG306 over many sessions: what is compared with what, and that the work stays that of the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.audit import reconcile
from tests.ledger.audit.editing import Events, edit, of_kind
from tests.support.long_log import write_long_run


@pytest.fixture
def three_times(tmp_path: Path) -> Path:
    """Return a run that did the same three updates in three sessions."""
    write_long_run(tmp_path / "run", events=9, sessions=3)
    return tmp_path / "run"


def redone(run: Path) -> list[tuple[str, object]]:
    """Return severity and sessions of what LG306 finds."""
    found = [finding for finding in reconcile(run).findings if finding.rule == "LG306"]
    return [(finding.severity, finding.evidence["sessions"]) for finding in found]


def other_loss(events: Events, *sessions: int) -> None:
    for session in sessions:
        train = of_kind(events, "train", session=session)[1]
        train["loss"] = train["loss_last"] = 7.0


def test_each_place_is_compared_once_a_session(tmp_path: Path):
    write_long_run(tmp_path / "run", events=120, sessions=40)
    verdict = reconcile(tmp_path / "run")
    assert verdict.account["redone_places_compared"] == 39 * 3
    assert "LG306" in verdict.checked


def test_what_differs_from_its_predecessor_is_told_once(three_times: Path):
    edit(three_times, lambda events: other_loss(events, 3))
    assert redone(three_times) == [("error", [2, 3])]


def test_what_differs_from_both_sides_is_told_of_both(three_times: Path):
    edit(three_times, lambda events: other_loss(events, 2))
    assert redone(three_times) == [("error", [1, 2]), ("error", [2, 3])]


def test_another_environment_in_between_hides_nothing(three_times: Path):
    def change(events: Events) -> None:
        other_loss(events, 2, 3)
        of_kind(events, "session_start", session=2)[0]["environment_sha256"] = "ab" * 32

    edit(three_times, change)
    assert sorted(redone(three_times), key=str) == [("error", [1, 3]), ("hint", [1, 2])]


def test_a_row_of_other_data_has_no_measures_to_compare(three_times: Path):
    def change(events: Events) -> None:
        other_loss(events, 3)
        for train in of_kind(events, "train", session=3):
            train["data_chain"] = "cd" * 32

    edit(three_times, change)
    assert redone(three_times) == [("error", [2, 3])]
