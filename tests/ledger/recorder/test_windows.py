"""Train events: where they fall and what their windows sum."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ledger.recorder import RunRecorder
from ledger.records.events import Checkpoint, SessionEnd, SessionStart, Train
from tests.support.reading import events, events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import Before, ToyLoop, ToySettings, attempt, begin, consume, record, run_toy, save

QUICK = QuickFileSystem()


def kinds_and_steps(run_dir) -> list[tuple[str, int]]:
    return [(type(event).__name__, event.step) for event in events(run_dir)]


@pytest.mark.parametrize("interval", [1, 2, 3, 5, 100])
def test_events_fall_at_absolute_multiples_before_checkpoints_and_at_the_end(run_dir, interval):
    settings = ToySettings(target_step=10, interval=interval, checkpoint_interval=4, evaluate_every=None)
    run_toy(run_dir, settings, fs=QUICK)
    due = {step for step in range(1, 11) if step % interval == 0} | {4, 8, 10}
    assert [event.step for event in events_of(run_dir, Train)] == sorted(due)


def test_a_resumed_session_keeps_to_absolute_multiples(run_dir):
    settings = ToySettings(target_step=10, interval=3, checkpoint_interval=4, evaluate_every=None)
    with pytest.raises(RuntimeError):
        run_toy(run_dir, settings, before=_fail_at(step=5), fs=QUICK)
    run_toy(run_dir, settings, start="resume", fs=QUICK)
    second = [event.step for event in events_of(run_dir, Train) if event.session == 2]
    assert second == [6, 8, 9, 10]


def _fail_at(*, step) -> Before:
    def before(recorder, _moment):
        if recorder.step == step:
            raise RuntimeError("the loop broke")

    return before


def test_from_one_event_to_the_next_totals_move_exactly_by_the_window(run_dir):
    settings = ToySettings(interval=3, accumulation=3, skip_attempts=frozenset({1, 4, 5, 13}), target_step=11)
    run_toy(run_dir, settings, fs=QUICK)
    marks = [event for event in events(run_dir) if isinstance(event, SessionStart | Train)]
    for before, after in pairwise(marks):
        assert isinstance(after, Train)
        window = after.window
        assert window.updates == after.step - before.step
        assert window.attempts == after.attempts - before.attempts
        assert window.skipped == after.skipped - before.skipped
        assert window.microbatches == after.microbatches - before.microbatches == len(after.batches)
        assert window.tokens == after.tokens_seen - before.tokens_seen
        assert window.loss_tokens == after.loss_tokens - before.loss_tokens


def test_the_window_before_a_checkpoint_comes_before_it_and_is_written_once(run_dir):
    settings = ToySettings(interval=4, checkpoint_interval=3, target_step=6, evaluate_every=None)
    run_toy(run_dir, settings, fs=QUICK)
    assert kinds_and_steps(run_dir) == [
        ("SessionStart", 0),
        ("Train", 3),
        ("Checkpoint", 3),
        ("Train", 4),
        ("Train", 6),
        ("Checkpoint", 6),
        ("Validation", 6),
        ("SessionEnd", 6),
    ]


def test_a_checkpoint_and_an_end_after_a_skip_leave_nothing_outstanding(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=1, interval=2, skip_attempts=frozenset({1, 3})))
        begin(recorder, loop)
        attempt(recorder, loop)
        save(recorder, loop, "interval")
        attempt(recorder, loop)
        attempt(recorder, loop)
    names = [name for name, _ in kinds_and_steps(run_dir)]
    assert names == ["SessionStart", "Overflow", "Train", "Checkpoint", "Overflow", "Train", "SessionEnd"]
    skipped, mixed = events_of(run_dir, Train)
    assert (skipped.window.updates, skipped.loss, skipped.loss_last, skipped.lr) == (0, None, None, None)
    assert (mixed.window.updates, mixed.window.skipped) == (1, 1)


def test_an_interrupted_window_is_closed_with_its_remainder(run_dir):
    def body(recorder, loop):
        attempt(recorder, loop)
        consume(recorder, loop)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(run_dir, body, settings=ToySettings(accumulation=3), fs=QUICK)
    last = events_of(run_dir, Train)[-1]
    assert (last.window.attempts, last.window.microbatches) == (0, 1)
    assert last.counters == events_of(run_dir, SessionEnd)[0].counters


def test_the_loss_of_a_window_is_weighted_by_the_loss_tokens_of_each_update(unaudited_dir):
    with RunRecorder(unaudited_dir, fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=1, interval=2, clip_norm=1.0))
        begin(recorder, loop)
        for loss, norm, counted in ((4.0, 2.0, 2), (1.0, 1.0, 6)):
            digest, cursor = loop.draw()
            recorder.microbatch(tokens=8, loss_tokens=counted, digest=digest, cursor=cursor)
            recorder.updated(loss=loss, grad_norm=norm, lr={"all": loss})
    (event,) = events_of(unaudited_dir, Train)
    assert (event.loss, event.loss_last) == (1.75, 1.0)
    assert (event.grad_norm, event.grad_norm_max, event.clipped) == (1.0, 2.0, 1)
    assert event.lr == {"all": 1.0}
    assert event.window.loss_tokens == 8


def test_nothing_is_clipped_without_a_limit(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=1, clip_norm=None))
        begin(recorder, loop)
        consume(recorder, loop)
        recorder.updated(loss=1.0, grad_norm=1e9, lr={"all": 0.01})
    assert [event.clipped for event in events_of(run_dir, Train)] == [0]


def test_state_digests_stand_in_train_events_only_where_the_recipe_asks(run_dir, tmp_path):
    run_toy(run_dir, ToySettings(evidence=True), fs=QUICK)
    run_toy(tmp_path / "plain", ToySettings(evidence=False), fs=QUICK)
    assert all(event.state is not None for event in events_of(run_dir, Train))
    assert all(event.state is None for event in events_of(tmp_path / "plain", Train))


def test_a_checkpoint_names_the_seq_of_the_last_event_before_it(run_dir):
    run_toy(run_dir, ToySettings(interval=5), fs=QUICK)
    for event in events_of(run_dir, Checkpoint):
        assert event.at.seq == event.seq - 1
        assert event.at.counters == event.counters
