"""A run that is killed anywhere and resumed records the same work as one that never stopped."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ledger.checkpoints import find_checkpoints
from ledger.records.events import Event, Overflow, Train, Validation
from tests.support.audited import assert_passed
from tests.support.reading import events, history
from tests.support.systems import QuickFileSystem
from tests.support.toy import Killed, ToySettings, run_toy

QUICK = QuickFileSystem()
BASE = ToySettings(target_step=7, accumulation=2, checkpoint_interval=3, evaluate_every=4)
SETTINGS = {
    "plain": BASE,
    "without checkpoints before the end": dataclasses.replace(BASE, policy="final"),
    "nothing kept": dataclasses.replace(BASE, policy="none"),
    "accumulation that does not divide the epoch": dataclasses.replace(BASE, accumulation=3),
    "no accumulation, several epochs": dataclasses.replace(
        BASE, accumulation=1, target_step=15, checkpoint_interval=4
    ),
    "sparse train events": dataclasses.replace(BASE, interval=4, evidence=False),
    "skipped attempts": dataclasses.replace(BASE, skip_attempts=frozenset({1, 4, 5, 9})),
    "a checkpoint after every update": dataclasses.replace(BASE, checkpoint_interval=1, evaluate_every=1),
}
LONG = {"no accumulation, several epochs", "a checkpoint after every update"}


class DieAt:
    """Counts the moments of a run and dies at one of them."""

    def __init__(self, moment: int | None) -> None:
        self.moment = moment
        self.count = 0

    def __call__(self, _recorder: object, _name: str) -> None:
        if self.count == self.moment:
            raise Killed
        self.count += 1


def moments(run_dir: Path, settings: ToySettings) -> int:
    """Do an uninterrupted run and return how many moments it had."""
    counting = DieAt(None)
    run_toy(run_dir, settings, before=counting, fs=QUICK)
    return counting.count


def work(run_dir: Path) -> dict[tuple[str, int], Any]:
    """Return what the current branch records of each place, without times, sequence and windows."""
    on_branch = {segment.session.number: segment for segment in history(run_dir).branch()}
    found: dict[tuple[str, int], Any] = {}
    for event in events(run_dir):
        segment = on_branch.get(event.session)
        if segment is not None and segment.holds(event.microbatches):
            found |= _measurements(event)
    return found


def _measurements(event: Event) -> dict[tuple[str, int], Any]:
    place = event.microbatches
    match event:
        case Train():
            last = (event.counters, event.cursor, event.data_chain, event.state)
            return {("train", place): (last, event.loss_last, event.grad_norm, event.lr)}
        case Overflow():
            return {("overflow", place): (event.counters, event.reason, event.consecutive)}
        case Validation():
            return {(f"val {event.complete}", place): (event.loss, event.tokens)}
    return {}


def last_state(run_dir: Path) -> Any:
    """Return what the last checkpoint holds: live state and the tensors of its files."""
    complete = find_checkpoints(run_dir)
    if not complete:
        return events(run_dir)[-1].counters
    last = max(complete, key=lambda found: found.manifest.counters.microbatches)
    tensors = {name: entry.tensors for name, entry in last.manifest.files.items()}
    return last.manifest.counters, last.manifest.state, last.manifest.data_chain, tensors


def assert_same(run_dir: Path, control: Path) -> None:
    done, expected = work(run_dir), work(control)
    assert {place: done[place] for place in expected} == expected
    assert last_state(run_dir) == last_state(control)
    assert history(run_dir).branch_counters() == history(control).branch_counters()
    assert_passed(run_dir)


def table() -> list[Any]:
    """Return the settings as cases; the longest runs are for the complete suite."""
    return [
        pytest.param(settings, id=name, marks=pytest.mark.slow if name in LONG else ())
        for name, settings in SETTINGS.items()
    ]


@pytest.mark.parametrize("settings", table())
def test_killed_at_any_moment_and_resumed_it_is_the_run_that_never_stopped(tmp_path, settings):
    control = tmp_path / "control"
    for moment in range(moments(control, settings)):
        run_dir = tmp_path / str(moment)
        with pytest.raises(Killed):
            run_toy(run_dir, settings, before=DieAt(moment), fs=QUICK)
        run_toy(run_dir, settings, start="auto", fs=QUICK)
        assert_same(run_dir, control)


@pytest.mark.parametrize(("first", "second"), [(5, 3), (12, 1), (12, 9), (20, 0)])
def test_killed_twice_it_is_still_the_same(tmp_path, first, second):
    moments(tmp_path / "control", BASE)
    run_dir = tmp_path / "run"
    with pytest.raises(Killed):
        run_toy(run_dir, BASE, before=DieAt(first), fs=QUICK)
    with pytest.raises(Killed):
        run_toy(run_dir, BASE, before=DieAt(second), start="auto", fs=QUICK)
    run_toy(run_dir, BASE, start="auto", fs=QUICK)
    assert_same(run_dir, tmp_path / "control")
