"""Which stages run: those asked for, what they read, and validate with every one that trains."""

from __future__ import annotations

from itertools import combinations

import pytest

from ledger.pilot import STAGES
from ledger.pilot.kinds import KINDS, selected_stages


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (None, list(STAGES)),
        (["prepare"], ["prepare"]),
        (["smoke"], ["prepare", "smoke", "stability", "validate"]),
        (["resume"], ["prepare", "stability", "resume", "validate"]),
        (["stability"], ["prepare", "stability", "validate"]),
        (["validate"], ["prepare", "stability", "validate"]),
        (["validate", "overfit"], ["prepare", "overfit", "stability", "validate"]),
    ],
)
def test_what_is_read_comes_along(asked: list[str] | None, chosen: list[str]):
    assert selected_stages(asked, extra={}) == chosen


def test_whatever_trains_is_validated():
    for number in range(1, len(STAGES) + 1):
        for asked in combinations(STAGES, number):
            chosen = selected_stages(asked, extra={})
            assert set(asked) <= set(chosen)
            assert ("validate" in chosen) == (set(asked) != {"prepare"})
            places = [STAGES.index(name) for name in chosen]
            assert places == sorted(places)
            assert all(set(KINDS[name].reads) <= set(chosen[: chosen.index(name)]) for name in chosen)


def test_stages_of_ones_own_come_last():
    extra = {"anneal": ("prepare", "validate"), "wide": ("prepare",)}
    assert selected_stages(None, extra=extra) == [*STAGES, "anneal", "wide"]
    assert selected_stages(["anneal"], extra=extra) == ["prepare", "stability", "validate", "anneal"]
