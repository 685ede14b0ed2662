"""The counters mean what the records reference says, whatever the loop reports."""

from __future__ import annotations

import math

import pytest

from ledger.errors import UsageError
from ledger.recorder import RunRecorder
from ledger.records.events import Overflow, Train
from ledger.records.parts import Counters, Position
from tests.support.reading import events, events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import (
    TOKENS_PER_MICROBATCH,
    ToyLoop,
    ToySettings,
    attempt,
    begin,
    consume,
    run_toy,
)

QUICK = QuickFileSystem()


def test_a_microbatch_moves_its_own_counters_at_once_and_no_other(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=2))
        begin(recorder, loop)
        digest, cursor = loop.draw()
        recorder.microbatch(tokens=8, loss_tokens=5, digest=digest, cursor=cursor)
        assert recorder.counters == Counters(0, 0, 0, 1, 8, 5)
        consume(recorder, loop)
        assert recorder.counters == Counters(0, 0, 0, 2, 16, 13)
        recorder.updated(loss=1.0, grad_norm=1.0, lr={"all": 0.01})
        assert recorder.counters == Counters(1, 1, 0, 2, 16, 13)


def test_a_skipped_attempt_counts_its_data_and_no_step(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=1, skip_attempts=frozenset({1, 2, 4})))
        begin(recorder, loop)
        for _ in range(4):
            attempt(recorder, loop)
        assert recorder.counters == Counters(1, 4, 3, 4, 32, 32)
        assert recorder.step == 1
    assert [event.consecutive for event in events_of(run_dir, Overflow)] == [1, 2, 1]


@pytest.mark.parametrize("accumulation", [1, 2, 3, 5])
@pytest.mark.parametrize("skips", [frozenset(), frozenset({1, 5, 6})])
def test_every_line_keeps_the_laws_of_the_counters(run_dir, accumulation, skips):
    settings = ToySettings(target_step=7, accumulation=accumulation, interval=3, skip_attempts=skips)
    run_toy(run_dir, settings, fs=QUICK)
    found = events(run_dir)
    for event in found:
        assert event.attempts == event.step + event.skipped
        assert event.microbatches == event.attempts * accumulation
        assert event.tokens_seen == event.microbatches * TOKENS_PER_MICROBATCH
    assert found[-1].counters == Counters(
        7,
        7 + len(skips),
        len(skips),
        (7 + len(skips)) * accumulation,
        (7 + len(skips)) * accumulation * 8,
        (7 + len(skips)) * accumulation * 8,
    )


def test_the_number_of_overflow_events_is_the_number_of_skips(run_dir):
    run_toy(run_dir, ToySettings(skip_attempts=frozenset({2, 3, 9})), fs=QUICK)
    assert len(events_of(run_dir, Overflow)) == events(run_dir)[-1].skipped == 3


def test_an_evaluation_moves_no_counter(run_dir):
    run_toy(run_dir, ToySettings(evaluate_every=1), fs=QUICK)
    before = None
    for event in events(run_dir):
        if type(event).__name__ == "Validation":
            assert before is not None
            assert event.counters == before.counters
        before = event


def test_skips_in_a_row_are_counted_across_a_resume(run_dir):
    loop = ToyLoop(ToySettings(accumulation=1, skip_attempts=frozenset({2, 3, 4})))
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, loop)
        for _ in range(3):
            attempt(recorder, loop)
        with recorder.checkpoint("interval") as folder:
            loop.save(folder, recorder.tensor_metadata())
    resumed = ToyLoop(loop.settings)
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, resumed, start="resume")
        assert recorder.consecutive_skips == 2
        attempt(recorder, resumed)
    assert [event.consecutive for event in events_of(run_dir, Overflow)] == [1, 2, 3]


def test_the_cursor_is_the_one_behind_the_last_consumed_microbatch(run_dir):
    run_toy(run_dir, ToySettings(target_step=4, accumulation=2), fs=QUICK)
    cursors = [event.cursor["train"] for event in events_of(run_dir, Train)]
    assert cursors == [Position(0, 16), Position(0, 32), Position(0, 48), Position(1, 8)]


@pytest.mark.parametrize("reported", [1, 3])
def test_an_attempt_needs_exactly_one_accumulation_window(run_dir, reported):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=2))
        begin(recorder, loop)
        with pytest.raises(UsageError, match=r"microbatch.* window"):
            _update_after(recorder, loop, microbatches=reported)
        while recorder.counters.microbatches < 2:
            consume(recorder, loop)
        recorder.skipped("guard")
        assert recorder.counters == Counters(0, 1, 1, 2, 16, 16)


def _update_after(recorder, loop, *, microbatches) -> None:
    for _ in range(microbatches):
        consume(recorder, loop)
    recorder.updated(loss=1.0, grad_norm=1.0, lr={"all": 0.01})


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": 7},
        {"loss_tokens": 9},
        {"loss_tokens": -1},
        {"digest": b"short"},
    ],
    ids=str,
)
def test_a_microbatch_that_contradicts_the_plan_is_refused_and_not_counted(run_dir, wrong):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=1))
        begin(recorder, loop)
        digest, cursor = loop.draw()
        with pytest.raises(UsageError):
            recorder.microbatch(**({"tokens": 8, "digest": digest, "cursor": cursor} | wrong))
        assert recorder.counters == Counters(0, 0, 0, 0, 0, 0)


def test_a_diverged_update_is_recorded_in_words(unaudited_dir):
    with RunRecorder(unaudited_dir, fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=1, interval=2))
        begin(recorder, loop)
        for loss, norm in ((math.nan, math.inf), (1.0, math.nan)):
            consume(recorder, loop)
            recorder.updated(loss=loss, grad_norm=norm, lr={"all": 0.01})
    (event,) = events_of(unaudited_dir, Train)
    assert (event.loss, event.loss_last, event.grad_norm, event.grad_norm_max) == ("NaN", 1.0, "NaN", "NaN")


def test_nothing_is_reported_before_the_start_or_after_the_end(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        with pytest.raises(UsageError, match="no session has started"):
            recorder.note("early")
        loop = ToyLoop(ToySettings(accumulation=1))
        begin(recorder, loop)
        with pytest.raises(UsageError, match="started already"):
            begin(recorder, loop)
        recorder.end("stopped")
        for late in (lambda: recorder.note("late"), lambda: consume(recorder, loop), recorder.end):
            with pytest.raises(UsageError, match="has ended"):
                late()
    with pytest.raises(UsageError, match="not open"):
        RunRecorder(run_dir).latest_checkpoint()
