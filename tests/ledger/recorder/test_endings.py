"""How a session ends: decided by the counters, or by what went wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger.errors import UsageError
from ledger.recorder import RunRecorder
from ledger.records.events import SessionEnd, Validation
from tests.support.reading import events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import ToyLoop, ToySettings, attempt, begin, consume, record, run_toy

QUICK = QuickFileSystem()
SMALL = ToySettings(target_step=2, accumulation=1, evaluate_every=None)


def last_end(run_dir) -> SessionEnd:
    return events_of(run_dir, SessionEnd)[-1]


def test_at_the_target_a_session_completes(run_dir):
    run_toy(run_dir, SMALL, fs=QUICK)
    end = last_end(run_dir)
    assert (end.status, end.step, end.target_step, end.error) == ("completed", 2, 2, None)
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        assert recorder.is_completed


def test_without_an_update_at_the_target_it_closes(run_dir):
    run_toy(run_dir, SMALL, fs=QUICK)
    run_toy(run_dir, SMALL, start="resume", fs=QUICK)
    assert last_end(run_dir).status == "closed"


def test_short_of_the_target_it_stops(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(SMALL)
        begin(recorder, loop)
        attempt(recorder, loop)
        assert recorder.end(reason="enough for today") == "stopped"
    assert (last_end(run_dir).status, last_end(run_dir).reason) == ("stopped", "enough for today")
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        assert not recorder.is_completed


def test_a_loop_that_returns_without_an_end_gets_one(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, ToyLoop(SMALL))
    assert last_end(run_dir).status == "stopped"


def _raise(error) -> Callable[[RunRecorder, ToyLoop], None]:
    def body(_recorder, _loop):
        raise error

    return body


def test_an_exception_ends_it_as_failed_with_its_text(run_dir):
    with pytest.raises(RuntimeError, match="out of luck"):
        record(run_dir, _raise(RuntimeError("out of luck")), settings=SMALL, fs=QUICK)
    end = last_end(run_dir)
    assert (end.status, end.error) == ("failed", "RuntimeError: out of luck")


def test_a_keyboard_interrupt_ends_it_as_interrupted(run_dir):
    with pytest.raises(KeyboardInterrupt):
        record(run_dir, _raise(KeyboardInterrupt()), settings=SMALL, fs=QUICK)
    assert (last_end(run_dir).status, last_end(run_dir).error) == ("interrupted", None)


def test_a_loop_that_returns_inside_an_accumulation_window_failed_and_hears_it(run_dir):
    with pytest.raises(UsageError, match="inside an accumulation window"):
        record(run_dir, consume, settings=ToySettings(accumulation=2), fs=QUICK)
    end = last_end(run_dir)
    assert end.status == "failed"
    assert "inside an accumulation window" in (end.error or "")


@pytest.mark.parametrize("status", ["completed", "closed"])
def test_no_session_completes_short_of_the_target(run_dir, status):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, ToyLoop(SMALL))
        with pytest.raises(UsageError, match="at step 0"):
            recorder.end(status)


def test_no_session_completes_beyond_the_target(run_dir):
    def body(recorder, loop):
        for _ in range(3):
            attempt(recorder, loop)

    with pytest.raises(UsageError, match="at step 3"):
        record(run_dir, body, settings=SMALL, fs=QUICK)
    assert last_end(run_dir).status == "failed"


def test_where_no_weights_are_kept_the_end_holds_the_final_state(run_dir, tmp_path):
    run_toy(run_dir, ToySettings(target_step=2, policy="none"), fs=QUICK)
    run_toy(tmp_path / "kept", SMALL, fs=QUICK)
    state = last_end(run_dir).state
    assert state is not None
    assert state.model is not None
    assert last_end(tmp_path / "kept").state is None
    assert not (run_dir / "checkpoints").exists()
    assert events_of(run_dir, Validation)[-1].evaluation is not None


def test_a_recorder_that_started_nothing_writes_no_log(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        assert not recorder.has_sessions
        assert recorder.recipe_in_force() is None
    assert [path.name for path in run_dir.iterdir()] == ["run.lock"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (None, "stopped"),
        (0, "stopped"),
        (143, "interrupted"),
        (130, "interrupted"),
        (1, "failed"),
        ("no", "failed"),
    ],
)
def test_a_loop_that_exits_ends_as_its_code_says(run_dir, code, status):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        raise SystemExit(code)

    with pytest.raises(SystemExit):
        record(run_dir, body, settings=SMALL, fs=QUICK)
    end = last_end(run_dir)
    assert end.status == status
    assert "SystemExit" in end.reason or "SystemExit" in (end.error or "")


def test_an_exit_inside_a_window_interrupts_it(run_dir):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        consume(recorder, loop)
        raise SystemExit(0)

    with pytest.raises(SystemExit):
        record(run_dir, body, settings=SMALL, fs=QUICK)
    assert last_end(run_dir).status == "interrupted"


def test_an_exit_at_the_target_claims_no_completion(run_dir):
    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        while recorder.step < SMALL.target_step:
            attempt(recorder, loop)
        raise SystemExit

    with pytest.raises(SystemExit):
        record(run_dir, body, settings=SMALL, fs=QUICK)
    assert last_end(run_dir).status == "stopped"
