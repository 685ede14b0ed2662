from __future__ import annotations

import pytest

from ledger.laws.batches import (
    EpochPosition,
    advanced,
    dropped_tokens,
    microbatches_per_epoch,
    planned_tokens,
    position_at,
    repeated_tokens,
    target_step,
    tokens_per_microbatch,
    tokens_per_update,
    usable_tokens,
)


def test_nominal_batch_is_the_product_of_its_parts():
    per_microbatch = tokens_per_microbatch(micro_batch=8, sequence_length=128, replicas=2)
    assert per_microbatch == 2_048
    assert tokens_per_update(tokens_per_microbatch=per_microbatch, accumulation=3) == 6_144


@pytest.mark.parametrize(
    ("tokens", "usable", "dropped"),
    [(0, 0, 0), (1, 0, 0), (8, 0, 7), (9, 8, 0), (16, 8, 7), (17, 16, 0), (18, 16, 1)],
)
def test_usable_tokens_leave_a_last_target(tokens: int, usable: int, dropped: int):
    assert usable_tokens(tokens=tokens, tokens_per_microbatch=8) == usable
    assert dropped_tokens(tokens=tokens, tokens_per_microbatch=8) == dropped


def test_plan_counts_the_updates_that_are_left():
    assert planned_tokens(start_step=10, target_step=30, tokens_per_update=100) == 2_000


def test_plan_backwards_is_refused():
    with pytest.raises(ValueError, match="target step 5 lies before start step 10"):
        planned_tokens(start_step=10, target_step=5, tokens_per_update=1)


@pytest.mark.parametrize(("budget", "step"), [(0, 7), (1, 8), (100, 8), (101, 9)])
def test_budget_becomes_the_first_step_that_covers_it(budget: int, step: int):
    assert target_step(budget_tokens=budget, tokens_per_update=100, start_step=7) == step


def test_repeating_more_microbatches_than_there_are_is_refused():
    assert repeated_tokens(repeat=2, tokens=17, tokens_per_microbatch=8) == 16
    with pytest.raises(ValueError, match="the source has 17"):
        repeated_tokens(repeat=3, tokens=17, tokens_per_microbatch=8)


def test_part_of_a_microbatch_is_no_epoch():
    assert microbatches_per_epoch(usable_tokens=24, tokens_per_microbatch=8) == 3
    with pytest.raises(ValueError, match="not whole microbatches"):
        microbatches_per_epoch(usable_tokens=20, tokens_per_microbatch=8)


def test_end_of_an_epoch_is_the_beginning_of_the_next():
    assert position_at(consumed_tokens=24, usable_tokens=24) == EpochPosition(epoch=1, offset=0)
    assert advanced(EpochPosition(epoch=1, offset=16), tokens=16, usable_tokens=24) == EpochPosition(
        epoch=2, offset=8
    )


@pytest.mark.parametrize("bad", [{"micro_batch": 0}, {"sequence_length": -1}, {"replicas": 0}])
def test_empty_batch_is_refused(bad: dict[str, int]):
    with pytest.raises(ValueError, match="must be at least 1"):
        tokens_per_microbatch(**{"micro_batch": 1, "sequence_length": 1, **bad})
