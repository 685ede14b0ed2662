"""The run folder, its lock or its log is moved, removed or replaced under a live writer: real processes do it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile
from ledger.errors import LockedError, StorageError, UnsafeError
from ledger.recorder import RunRecorder
from ledger.records.events import Checkpoint, SessionEnd, SessionStart
from ledger.records.layout import CHECKPOINTS, LOCK, LOG
from ledger.storage import lock as lock_module
from ledger.storage.lock import RunLock
from tests.support.audited import assert_passed
from tests.support.reading import events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import ToyLoop, ToySettings, attempt, begin, evaluate, record, save, train

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=4, accumulation=1, checkpoint_interval=2, evaluate_every=None)

SECOND_WRITER = """
import sys
from ledger.errors import LockedError
from ledger.storage.lock import RunLock
try:
    RunLock(sys.argv[1])
except LockedError:
    sys.exit(5)
"""


def shell(*command: str | Path) -> None:
    """Do something to a file from another process."""
    subprocess.run(["env", *map(str, command)], check=True)  # noqa: S607 - finds the program wherever it lies


def under_way(run_dir: Path, deed: Callable[[RunRecorder, ToyLoop], object]) -> None:
    """Train a little, do something in the middle, and train to the end."""

    def body(recorder: RunRecorder, loop: ToyLoop) -> None:
        attempt(recorder, loop)
        deed(recorder, loop)
        train(recorder, loop)

    record(run_dir, body, settings=SETTINGS, fs=QUICK)


class TestLockFile:
    """A lock file that is gone protects nothing, so nothing that matters is written any more."""

    @pytest.fixture(params=["removed", "replaced"])
    def displace(self, request: pytest.FixtureRequest) -> Callable[[Path], None]:
        def remove(run_dir: Path) -> None:
            shell("rm", run_dir / LOCK)

        def replace(run_dir: Path) -> None:
            shell("cp", run_dir / LOCK, run_dir / "copy")
            shell("mv", run_dir / "copy", run_dir / LOCK)

        return remove if request.param == "removed" else replace

    def test_no_session_starts(self, run_dir: Path, displace: Callable[[Path], None]):
        with RunRecorder(run_dir) as recorder:
            displace(run_dir)
            with pytest.raises(UnsafeError, match="removed or replaced") as caught:
                begin(recorder, ToyLoop(SETTINGS))
        assert caught.value.exit_code == 7
        assert not (run_dir / LOG).exists()

    def test_no_checkpoint_is_committed(self, run_dir: Path, displace: Callable[[Path], None]):
        def deed(recorder: RunRecorder, loop: ToyLoop) -> None:
            displace(run_dir)
            save(recorder, loop, "interval")

        with pytest.raises(UnsafeError, match="removed or replaced"):
            under_way(run_dir, deed)
        assert list((run_dir / CHECKPOINTS).iterdir()) == []
        assert events_of(run_dir, Checkpoint) == []
        assert events_of(run_dir, SessionEnd) == []

    def test_no_session_ends(self, run_dir: Path, displace: Callable[[Path], None]):
        with pytest.raises(UnsafeError, match="removed or replaced"):
            record(run_dir, lambda *_: displace(run_dir), settings=SETTINGS, fs=QUICK)
        assert events_of(run_dir, SessionEnd) == []

    def test_the_error_of_the_loop_stays_the_one_that_is_raised(
        self, run_dir: Path, displace: Callable[[Path], None]
    ):
        def deed(*_: object) -> None:
            displace(run_dir)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            record(run_dir, deed, settings=SETTINGS, fs=QUICK)
        assert any("removed or replaced" in note for note in caught.value.__notes__)

    def test_the_run_goes_on_with_the_next_writer(self, run_dir: Path, displace: Callable[[Path], None]):
        with pytest.raises(UnsafeError):
            record(run_dir, lambda *_: displace(run_dir), settings=SETTINGS, fs=QUICK)
        record(run_dir, train, settings=SETTINGS, start="auto", fs=QUICK)
        assert [event.previous_session for event in events_of(run_dir, SessionStart)] == ["none", "unclean"]


class TestMovedFolder:
    """The writer follows its folder: the log by descriptor, checkpoints to where it lies now."""

    @pytest.fixture
    def moved(self, tmp_path: Path) -> Path:
        return tmp_path / "elsewhere" / "moved"

    @pytest.fixture
    def finished(self, run_dir: Path, moved: Path) -> Path:
        """Return a run that was moved in the middle and went on to its end."""

        def deed(recorder: RunRecorder, loop: ToyLoop) -> None:
            save(recorder, loop, "interval")
            moved.parent.mkdir()
            shell("mv", run_dir, moved)

        under_way(run_dir, deed)
        return moved

    def test_it_is_complete_and_passes_the_audit(self, finished: Path, run_dir: Path):
        assert not run_dir.exists()
        assert [event.path[-12:-4] for event in events_of(finished, Checkpoint)] == [
            "00000001",
            "00000002",
            "00000004",
        ]
        assert_passed(finished)

    def test_a_folder_that_takes_its_old_place_is_left_alone(self, run_dir: Path, moved: Path):
        def deed(*_: object) -> None:
            moved.parent.mkdir()
            shell("mv", run_dir, moved)
            run_dir.mkdir()

        under_way(run_dir, deed)
        assert list(run_dir.iterdir()) == []
        assert_passed(moved)

    def test_a_second_writer_is_kept_out_there_too(
        self, run_dir: Path, moved: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(lock_module, "_PATIENCE_SECONDS", 0.02)

        def deed(*_: object) -> None:
            moved.parent.mkdir()
            shell("mv", run_dir, moved)
            with pytest.raises(LockedError):
                RunLock(moved)

        under_way(run_dir, deed)

    def test_through_a_link(self, run_dir: Path, tmp_path: Path):
        run_dir.mkdir()
        (tmp_path / "link").symlink_to(run_dir)
        under_way(tmp_path / "link", lambda *_: None)
        assert_passed(run_dir)


class TestDeletedFolder:
    """What is written into a deleted folder is lost, so the next append says so."""

    def test_the_next_event_is_refused(self, unaudited_dir: Path):
        with pytest.raises(StorageError) as caught:
            under_way(unaudited_dir, lambda *_: shell("rm", "-r", unaudited_dir))
        assert caught.value.exit_code == 4
        assert not unaudited_dir.exists()
        first = str(caught.value).partition("; ")[0]
        assert first.startswith(f"{unaudited_dir}: the folder was deleted, or moved to another file system")
        assert "then resume" in str(caught.value)

    def test_a_folder_named_from_where_the_writer_stands_is_told_in_full(
        self, unaudited_dir: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.chdir(unaudited_dir.parent)
        with pytest.raises(StorageError, match=f"^{unaudited_dir}: the folder was deleted"):
            under_way(Path(unaudited_dir.name), lambda *_: shell("rm", "-r", unaudited_dir))

    def test_of_a_folder_that_stays_the_log_is_named(self, unaudited_dir: Path):
        with pytest.raises(StorageError, match=f"^{unaudited_dir / LOG}: the log was removed or renamed"):
            under_way(unaudited_dir, lambda *_: shell("rm", unaudited_dir / LOG))

    def test_the_session_s_end_is_refused(self, unaudited_dir: Path):
        with pytest.raises(StorageError, match="deleted"):
            record(unaudited_dir, lambda *_: shell("rm", "-r", unaudited_dir), settings=SETTINGS, fs=QUICK)

    def test_a_checkpoint_is_not_put_elsewhere(self, unaudited_dir: Path):
        def deed(recorder: RunRecorder, loop: ToyLoop) -> None:
            shell("rm", "-r", unaudited_dir)
            unaudited_dir.mkdir()
            save(recorder, loop, "interval")

        with pytest.raises(StorageError, match="the folder was deleted"):
            under_way(unaudited_dir, deed)
        assert list(unaudited_dir.iterdir()) == []

    def test_a_kept_evaluation_is_not_put_elsewhere(self, unaudited_dir: Path):
        def deed(recorder: RunRecorder, loop: ToyLoop) -> None:
            shell("rm", "-r", unaudited_dir)
            unaudited_dir.mkdir()
            evaluate(recorder, loop, complete=True)

        with pytest.raises(StorageError, match="the folder was deleted"):
            under_way(unaudited_dir, deed)
        assert list(unaudited_dir.iterdir()) == []


@pytest.mark.parametrize("program", ["sed", "cp and mv"])
def test_a_log_that_an_editor_saves_is_not_written_further(run_dir: Path, program: str):
    def deed(*_: object) -> None:
        if program == "sed":
            shell("sed", "-i", "s/nothing like this/x/", run_dir / LOG)
        else:
            shell("cp", run_dir / LOG, run_dir / "copy")
            shell("mv", run_dir / "copy", run_dir / LOG)

    with pytest.raises(StorageError, match="no longer the file that was opened"):
        under_way(run_dir, deed)
    assert len(events_of(run_dir, SessionEnd)) == 0
    assert reconcile(run_dir).status != "completed"


def test_a_second_process_is_refused_while_a_session_is_under_way(run_dir: Path):
    codes = []

    def deed(*_: object) -> None:
        command = [sys.executable, "-c", SECOND_WRITER, str(run_dir)]
        codes.append(subprocess.run(command, check=False).returncode)

    under_way(run_dir, deed)
    assert codes == [5]
