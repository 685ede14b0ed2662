"""The laws hold for every number, not only for the ones that came to mind."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from ledger.laws.batches import EpochPosition, advanced, dropped_tokens, position_at, usable_tokens
from ledger.laws.schedules import CosineSchedule, learning_rate

sizes = st.integers(1, 10**6)
schedules = st.builds(
    CosineSchedule,
    horizon_tokens=st.integers(0, 10**9),
    warmup_steps=st.integers(0, 10**4),
    min_lr_ratio=st.floats(0.0, 1.0),
)


def rate(schedule: CosineSchedule, step: int, tokens: int) -> float:
    return learning_rate(schedule, step=step, tokens_per_update=tokens, base=1.0)


@given(tokens=st.integers(0, 10**12), per_microbatch=sizes)
def test_usable_tokens_are_the_most_whole_microbatches_with_a_last_target(tokens: int, per_microbatch: int):
    usable = usable_tokens(tokens=tokens, tokens_per_microbatch=per_microbatch)
    assert usable % per_microbatch == 0
    assert usable == 0 or usable + 1 <= tokens
    assert usable + per_microbatch + 1 > tokens
    if tokens:
        assert usable + dropped_tokens(tokens=tokens, tokens_per_microbatch=per_microbatch) + 1 == tokens


@given(consumed=st.integers(0, 10**12), more=st.integers(0, 10**9), usable=sizes)
def test_positions_add_up(consumed: int, more: int, usable: int):
    start = position_at(consumed_tokens=consumed, usable_tokens=usable)
    end = advanced(start, tokens=more, usable_tokens=usable)
    assert 0 <= end.offset < usable
    assert end.epoch * usable + end.offset == consumed + more
    assert advanced(start, tokens=usable, usable_tokens=usable) == EpochPosition(
        epoch=start.epoch + 1, offset=start.offset
    )


@given(schedule=schedules, step=st.integers(1, 10**6), tokens=sizes)
def test_rate_stays_between_nothing_and_the_base(schedule: CosineSchedule, step: int, tokens: int):
    assert 0.0 <= rate(schedule, step, tokens) <= 1.0


@given(schedule=schedules, step=st.integers(1, 10**4), tokens=sizes)
def test_rate_rises_in_warm_up_and_never_after(schedule: CosineSchedule, step: int, tokens: int):
    now, following = rate(schedule, step, tokens), rate(schedule, step + 1, tokens)
    if step < schedule.warmup_steps:
        assert following > now
    else:
        assert following <= now


@given(schedule=schedules, tokens=sizes)
def test_end_of_warm_up_is_exactly_the_base(schedule: CosineSchedule, tokens: int):
    assume(schedule.warmup_steps > 0)
    assert rate(schedule, schedule.warmup_steps, tokens) == 1.0


@given(schedule=schedules, tokens=sizes, beyond=st.integers(0, 10**6))
def test_rate_behind_the_horizon_is_the_end_value(schedule: CosineSchedule, tokens: int, beyond: int):
    first = max(-(-schedule.horizon_tokens // tokens), schedule.warmup_steps + 1, 1)
    assert rate(schedule, first + beyond, tokens) == schedule.min_lr_ratio
