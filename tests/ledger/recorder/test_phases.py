"""Seconds: phases divide a session's wall clock, and events account for them exactly."""

from __future__ import annotations

import pytest

from ledger.recorder import RunRecorder
from ledger.recorder.phases import PhaseClock
from ledger.records.events import PHASES, Checkpoint, SessionEnd, Train, Validation
from tests.support.clocks import SteppingClock
from tests.support.reading import events, events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import ToyLoop, ToySettings, attempt, begin, consume, record, run_toy, save

QUICK = QuickFileSystem()
STEP = 0.125  # a power of two, so that sums are exact


def sums_of_events(run_dir, session=1) -> dict[str, float]:
    """Return what the events of one session account for, by phase."""
    return {
        "train": sum(event.window.seconds for event in events_of(run_dir, Train) if event.session == session),
        "data": sum(
            event.window.data_seconds for event in events_of(run_dir, Train) if event.session == session
        ),
        "evaluate": sum(
            event.seconds for event in events_of(run_dir, Validation) if event.session == session
        ),
        "checkpoint": sum(
            event.seconds for event in events_of(run_dir, Checkpoint) if event.session == session
        ),
    }


@pytest.mark.parametrize("interval", [1, 5])
def test_in_a_completed_session_phases_equal_the_sums_of_its_events(run_dir, interval):
    settings = ToySettings(interval=interval, skip_attempts=frozenset({2, 14}))
    run_toy(run_dir, settings, clock=SteppingClock(step_seconds=STEP), fs=QUICK)
    (end,) = events_of(run_dir, SessionEnd)
    assert set(end.phases) == set(PHASES)
    for phase, seconds in sums_of_events(run_dir).items():
        assert end.phases[phase] == seconds > 0


def test_phases_sum_to_the_wall_clock(run_dir):
    run_toy(run_dir, clock=SteppingClock(step_seconds=STEP), fs=QUICK)
    (end,) = events_of(run_dir, SessionEnd)
    assert end.elapsed - 6 * STEP <= sum(end.phases.values()) <= end.elapsed


def test_a_session_that_is_cut_short_keeps_the_seconds_that_no_event_accounts_for(run_dir):
    def body(recorder, loop):
        attempt(recorder, loop)
        save(recorder, loop, "interval")
        with recorder.phase("data"):
            loop.draw()
        raise KeyboardInterrupt

    settings = ToySettings(accumulation=2, interval=3)
    with pytest.raises(KeyboardInterrupt):
        record(run_dir, body, settings=settings, clock=SteppingClock(), fs=QUICK)
    (end,) = events_of(run_dir, SessionEnd)
    sums = sums_of_events(run_dir)
    assert all(end.phases[phase] >= seconds for phase, seconds in sums.items())
    assert end.phases["data"] > sums["data"]
    assert sum(end.phases.values()) <= end.elapsed


def test_elapsed_never_falls_within_a_session(run_dir):
    run_toy(run_dir, ToySettings(target_step=6), clock=SteppingClock(), fs=QUICK)
    elapsed = [event.elapsed for event in events(run_dir)]
    assert elapsed == sorted(elapsed)


def test_writing_events_counts_as_report_and_not_as_training(run_dir):
    with RunRecorder(run_dir, clock=SteppingClock(step_seconds=STEP), fs=QUICK) as recorder:
        loop = ToyLoop(ToySettings(accumulation=1, interval=1, skip_attempts=frozenset(range(2, 50))))
        begin(recorder, loop)
        consume(recorder, loop)
        recorder.updated(loss=1.0, grad_norm=1.0, lr={"all": 0.01})
        for _ in range(40):
            attempt(recorder, loop)
    (end,) = events_of(run_dir, SessionEnd)
    assert end.phases["report"] >= 40 * STEP


def test_a_phase_inside_a_phase_counts_once():
    clock = SteppingClock(step_seconds=STEP)
    phases = PhaseClock(clock)
    with phases.within("evaluate"), phases.within("data"):
        pass
    totals = phases.totals()
    assert (totals["evaluate"], totals["data"]) == (2 * STEP, STEP)
    assert totals["startup"] == 2 * STEP
    assert phases.phase == "startup"


def test_a_phase_ends_with_its_block_also_when_the_block_fails():
    phases = PhaseClock(SteppingClock())
    with pytest.raises(RuntimeError), phases.within("checkpoint"):
        raise RuntimeError("the disk broke")
    assert phases.phase == "startup"


def test_an_unknown_phase_is_refused():
    phases = PhaseClock(SteppingClock())
    with pytest.raises(KeyError), phases.within("coffee"):
        pass


def test_taken_seconds_start_again_from_nothing():
    phases = PhaseClock(SteppingClock(step_seconds=STEP))
    phases.switch("train")
    assert phases.take("train") == STEP
    assert phases.take("train") == STEP
    assert phases.seconds("startup") == STEP
