"""Order never comes from a clock, a link, or the order of names: only from what was recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ledger.recorder import RunRecorder
from ledger.records.layout import CHECKPOINTS
from tests.support.audited import assert_passed
from tests.support.clocks import SteppingClock
from tests.support.reading import events
from tests.support.systems import QuickFileSystem
from tests.support.toy import Killed, ToySettings, run_toy

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=8, accumulation=1, checkpoint_interval=2, evaluate_every=None)


class JumpingClock(SteppingClock):
    """Its wall time jumps to and fro by years; the monotonic one goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._years = iter(range(10**6))

    def now(self) -> str:
        year = (2026, 1970, 2027, 2099)[next(self._years) % 4]
        return f"{year}{super().now()[4:]}"


def killed_at(run_dir: Path, attempts: int, start: str, clock: SteppingClock | None = None) -> None:
    def die(recorder: RunRecorder, _moment: str) -> None:
        if recorder.counters.attempts == attempts:
            raise Killed

    with pytest.raises(Killed):
        run_toy(run_dir, SETTINGS, start=start, before=die, fs=QUICK, clock=clock)  # type: ignore[arg-type]


def latest_step(run_dir: Path) -> int:
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        found = recorder.latest_checkpoint()
        assert found is not None
        return found.manifest.counters.step


def test_a_wall_clock_that_jumps_changes_nothing_but_the_times(run_dir: Path, tmp_path: Path):
    for folder, clock in ((run_dir, JumpingClock()), (tmp_path / "steady", SteppingClock())):
        killed_at(folder, 5, "fresh", clock)
        assert latest_step(folder) == 4
        run_toy(folder, SETTINGS, start="resume", fs=QUICK, clock=clock)
    assert len({event.time[:4] for event in events(run_dir)}) == 4
    facts = [
        [(event.seq, event.session, event.counters, type(event)) for event in events(folder)]
        for folder in (run_dir, tmp_path / "steady")
    ]
    assert facts[0] == facts[1]
    assert_passed(run_dir)


def test_the_times_of_files_and_foreign_links_do_not_choose_a_checkpoint(run_dir: Path):
    killed_at(run_dir, 7, "fresh")
    folders = sorted((run_dir / CHECKPOINTS).iterdir())
    assert [folder.name[:13] for folder in folders] == ["step-00000002", "step-00000004", "step-00000006"]
    for age, folder in enumerate(folders):
        os.utime(folder, (2_000_000_000 - age, 2_000_000_000 - age))
        os.utime(folder / "manifest.json", (2_000_000_000 - age, 2_000_000_000 - age))
    latest = run_dir / CHECKPOINTS / "latest"
    latest.symlink_to(folders[0].name)
    assert latest_step(run_dir) == 6
    latest.unlink()


def test_a_greater_step_on_a_branch_that_was_left_is_not_the_latest(run_dir: Path):
    killed_at(run_dir, 7, "fresh")
    killed_at(run_dir, 3, "restart")
    assert latest_step(run_dir) == 2
    run_toy(run_dir, SETTINGS, start="resume", fs=QUICK)
