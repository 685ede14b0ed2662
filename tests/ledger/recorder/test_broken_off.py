"""A report that is broken off in its middle, as by a second signal: what is on record stays true."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import UsageError
from ledger.recorder import LiveState, RunRecorder
from ledger.recorder.account import Account
from ledger.recorder.tearing import Tearing
from ledger.recorder.window import OpenWindow
from ledger.recorder.writer import EventWriter
from ledger.records.events import SessionEnd, Train, Validation
from tests.support.audited import assert_honest, assert_passed
from tests.support.reading import events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import ToyLoop, ToySettings, attempt, begin, evaluate, run_toy, save

Work = Callable[[RunRecorder, ToyLoop], Any]
QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=4, accumulation=2, checkpoint_interval=2, evaluate_every=None)


def break_off(run_dir: Path, work: Work, settings: ToySettings = SETTINGS) -> None:
    """Train two steps, then do something that a second signal ends."""

    def body() -> None:
        with RunRecorder(run_dir, fs=QUICK) as recorder:
            loop = ToyLoop(settings)
            begin(recorder, loop)
            attempt(recorder, loop)
            attempt(recorder, loop)
            work(recorder, loop)

    with pytest.raises(KeyboardInterrupt):
        body()


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def interrupt_once(monkeypatch: pytest.MonkeyPatch, owner: Any, method: str) -> None:
    """Let the next call of a method be broken off before it does anything."""
    original = getattr(owner, method)

    def broken(*_: Any, **__: Any) -> None:
        monkeypatch.setattr(owner, method, original)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, method, broken)


def go_on(run_dir: Path, settings: ToySettings = SETTINGS) -> None:
    assert_honest(run_dir)
    run_toy(run_dir, settings, start="auto", fs=QUICK)
    assert_passed(run_dir)


def test_while_the_state_is_captured_the_window_is_not_lost(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    signals = [interrupt]

    def capture(loop: ToyLoop) -> LiveState:
        if signals and loop.draws > 4:
            signals.pop()()
        return original(loop)

    original = ToyLoop.capture
    monkeypatch.setattr(ToyLoop, "capture", capture)

    def work(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)

    break_off(run_dir, work)
    last = events_of(run_dir, SessionEnd)[-1]
    assert (last.status, last.step) == ("interrupted", 3)
    assert sum(event.window.updates for event in events_of(run_dir, Train)) == 3
    go_on(run_dir)


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (OpenWindow, "add_microbatch"),
        (OpenWindow, "add_update"),
        (OpenWindow, "__init__"),
        (Account, "_attempt"),
    ],
)
def test_between_two_counters_no_end_is_written(
    owner: type, method: str, run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    def work(recorder: RunRecorder, loop: ToyLoop) -> None:
        interrupt_once(monkeypatch, owner, method)
        attempt(recorder, loop)

    break_off(run_dir, work)
    assert not events_of(run_dir, SessionEnd)
    go_on(run_dir)


def test_between_a_skip_and_its_event_no_end_is_written(run_dir: Path, monkeypatch: pytest.MonkeyPatch):
    settings = dataclasses.replace(SETTINGS, skip_attempts=frozenset({3}))

    def work(recorder: RunRecorder, loop: ToyLoop) -> None:
        interrupt_once(monkeypatch, EventWriter, "write")
        attempt(recorder, loop)

    break_off(run_dir, work, settings)
    assert not events_of(run_dir, SessionEnd)
    go_on(run_dir, settings)


def test_between_an_evaluation_s_file_and_its_event_no_end_is_written(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    def work(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        attempt(recorder, loop)
        save(recorder, loop, "final")
        interrupt_once(monkeypatch, EventWriter, "write")
        evaluate(recorder, loop, complete=True)

    break_off(run_dir, work)
    assert len(list((run_dir / "evaluations").iterdir())) == 1
    assert not events_of(run_dir, SessionEnd)
    assert not events_of(run_dir, Validation)
    go_on(run_dir)


def test_what_refuses_before_anything_has_changed_tears_nothing():
    tearing = Tearing()
    with pytest.raises(UsageError), tearing.guarded():
        raise UsageError("too early")
    assert not tearing.is_torn
    with pytest.raises(MemoryError), tearing.guarded():
        raise MemoryError
    assert tearing.is_torn
