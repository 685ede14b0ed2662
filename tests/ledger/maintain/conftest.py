"""A run with two sessions, whose second was killed, to be broken by the tests of maintenance."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ledger.recorder import RunRecorder
from ledger.records.layout import RUN
from tests.ledger.audit.conftest import copy_of, healthy_run
from tests.support.systems import QuickFileSystem
from tests.support.toy import Killed, ToySettings, run_toy

__all__ = ["copy_of", "first_run_json", "healthy_run", "killed_run", "run_dir"]

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=8, accumulation=1, checkpoint_interval=3, evaluate_every=None)


@pytest.fixture(scope="session")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run, not to be changed; `first-run.json` beside it is its run.json before the second session."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    _run_until(folder, attempts=4, start="fresh")
    shutil.copy(folder / RUN, folder.with_name("first-run.json"))
    _run_until(folder, attempts=7, start="resume")
    return folder


def _run_until(folder: Path, *, attempts: int, start: str) -> None:
    def die(recorder: RunRecorder, _moment: str) -> None:
        if recorder.counters.attempts == attempts:
            raise Killed

    with pytest.raises(Killed):
        run_toy(folder, SETTINGS, start=start, before=die, fs=QUICK)  # type: ignore[arg-type]


@pytest.fixture
def run_dir(killed_run: Path, tmp_path: Path) -> Path:
    """Return a copy of the run."""
    return Path(shutil.copytree(killed_run, tmp_path / "run"))


@pytest.fixture
def first_run_json(killed_run: Path) -> bytes:
    """Return run.json as it was before the second session."""
    return killed_run.with_name("first-run.json").read_bytes()
