"""Every file operation of a run fails once, or is the last thing its process did; no acknowledged event is lost."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from ledger.errors import LedgerError
from ledger.recorder import RunRecorder
from ledger.records.events import SessionEnd
from ledger.records.layout import LOG
from tests.support.audited import assert_passed
from tests.support.reading import events
from tests.support.systems import Fault, FaultyFileSystem, QuickFileSystem
from tests.support.thorough import IS_THOROUGH
from tests.support.toy import Killed, ToySettings, run_toy

QUICK = QuickFileSystem()
SETTINGS = ToySettings(
    target_step=3, accumulation=2, checkpoint_interval=2, evaluate_every=2, skip_attempts=frozenset({3})
)
FAULTS: list[Fault] = ["refused", "full", "killed", "killed after"]
SAMPLE = 12


def operations(run_dir: Path) -> int:
    """Return how many file operations a run asks for."""
    fs = FaultyFileSystem()
    run_toy(run_dir, SETTINGS, fs=fs)
    return len(fs.tried)


def break_at(run_dir: Path, number: int, fault: Fault) -> FaultyFileSystem:
    """Run with a fault at one operation; nothing but our own errors comes of it."""
    fs = FaultyFileSystem()
    fs.arm(number, fault)
    with suppress(LedgerError, Killed):
        run_toy(run_dir, SETTINGS, fs=fs)
    return fs


def go_on(run_dir: Path) -> None:
    """Continue as a person would: from the latest checkpoint, or afresh where no session came about."""
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        has_sessions = recorder.has_sessions
    run_toy(run_dir, SETTINGS, start="auto" if has_sessions else "fresh", fs=QUICK)


def check(run_dir: Path, control: Path, number: int, fault: Fault) -> None:
    """Break one operation, then look at what is left and go on from it."""
    fs = break_at(run_dir, number, fault)
    log = run_dir / LOG
    written = log.read_bytes() if log.exists() else b""
    assert written.startswith(fs.log)
    assert b"\n" not in written[len(fs.log) :]
    go_on(run_dir)
    assert log.read_bytes().startswith(fs.log)
    last, expected = events(run_dir)[-1], events(control)[-1]
    assert isinstance(last, SessionEnd)
    assert last.status in ("completed", "closed")
    assert last.counters == expected.counters
    assert_passed(run_dir)


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run that nothing went wrong in."""
    run_dir = tmp_path_factory.mktemp("control") / "run"
    run_toy(run_dir, SETTINGS, fs=QUICK)
    return run_dir


def turns(count: int, fault: Fault) -> range:
    """Return the operations that a fault strikes: every fourth, each fault others, or all."""
    return range(count) if IS_THOROUGH else range(FAULTS.index(fault), count, len(FAULTS))


@pytest.mark.parametrize("fault", FAULTS)
def test_after_some_failing_operation_a_run_goes_on(tmp_path, control, fault):
    start = FAULTS.index(fault)  # so that the four of them look at different operations
    for number in range(start, operations(tmp_path / "probe"), SAMPLE):
        check(tmp_path / str(number), control, number, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_after_every_failing_operation_a_run_goes_on(tmp_path, control, fault):
    for number in turns(operations(tmp_path / "probe"), fault):
        check(tmp_path / str(number), control, number, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_after_every_failing_operation_of_a_resume_a_run_goes_on(tmp_path, control, fault):
    probe = FaultyFileSystem()
    _stop_in_the_middle(tmp_path / "probe")
    run_toy(tmp_path / "probe", SETTINGS, start="resume", fs=probe)
    for number in turns(len(probe.tried), fault):
        run_dir = tmp_path / str(number)
        _stop_in_the_middle(run_dir)
        before = (run_dir / LOG).read_bytes()
        fs = FaultyFileSystem()
        fs.arm(number, fault)
        with suppress(LedgerError, Killed):
            run_toy(run_dir, SETTINGS, start="resume", fs=fs)
        go_on(run_dir)
        intact = before[: before.rfind(b"\n") + 1]
        assert (run_dir / LOG).read_bytes().startswith(intact + fs.log)
        assert events(run_dir)[-1].counters == events(control)[-1].counters
        assert_passed(run_dir)


def _stop_in_the_middle(run_dir: Path) -> None:
    """Leave a run that was killed behind a checkpoint, in the middle of a line."""

    def before(recorder: RunRecorder, moment: str) -> None:
        if recorder.step == 2 and moment == "attempt":
            raise Killed

    with pytest.raises(Killed):
        run_toy(run_dir, SETTINGS, before=before, fs=QUICK)
    with (run_dir / LOG).open("ab") as log:
        log.write(b'{"event":"overflow","seq":')
