"""Every file operation of every writer of the storage layer fails once, in every mode.

Nothing acknowledged is lost, nothing is half, no error is swallowed.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.errors import LockedError, StorageError
from ledger.storage.atomic import create_file, is_temporary_name, publish_folder, replace_file
from ledger.storage.filesystem import FileSystem
from ledger.storage.lock import RunLock, lock_state
from ledger.storage.log import EventLog, quarantine_tail, read_log
from tests.ledger.storage.building import RUN_ID, FailingFileSystem, ToldClock, events, write_log

MODES = ["before", "after", "torn"]
CODES = [errno.EIO, errno.ENOSPC]
MANY = 200


def fail_everywhere(
    tmp_path: Path,
    prepare: Callable[[Path], object],
    act: Callable[[Path, FileSystem], object],
    check: Callable[[Path, FailingFileSystem, bool], None],
) -> None:
    """Let each operation of `act` fail in each mode on a fresh folder, then check what is left."""
    tried = 0
    for mode in MODES:
        for code in CODES:
            for number in range(MANY):
                folder = tmp_path / "folder"
                folder.mkdir()
                prepare(folder)
                fs = FailingFileSystem(number, mode=mode, code=code)
                try:
                    act(folder, fs)
                    has_succeeded = True
                except StorageError:
                    has_succeeded = False
                check(folder, fs, has_succeeded)
                shutil.rmtree(folder)
                if not fs.has_failed:
                    break
                tried += 1
            else:
                raise AssertionError("the operations do not end")
    assert tried >= len(MODES) * len(CODES) * 3


def nothing(folder: Path) -> None:
    """Prepare nothing."""
    assert list(folder.iterdir()) == []


def ours(folder: Path) -> list[str]:
    """The names in a folder without temporary ones."""
    return sorted(entry.name for entry in folder.iterdir() if not is_temporary_name(entry.name))


def test_a_replaced_file_is_old_or_new(tmp_path: Path):
    def check(folder: Path, fs: FailingFileSystem, has_succeeded: bool) -> None:
        assert has_succeeded == (not fs.has_failed), "an error was swallowed, or raised without a cause"
        content = (folder / "run.json").read_bytes()
        assert content in {b"old" * 999, b"new" * 999}
        assert not has_succeeded or content == b"new" * 999
        assert ours(folder) == ["run.json"]

    fail_everywhere(
        tmp_path,
        lambda folder: (folder / "run.json").write_bytes(b"old" * 999),
        lambda folder, fs: replace_file(folder / "run.json", b"new" * 999, fs=fs),
        check,
    )


def test_a_created_file_is_absent_or_whole(tmp_path: Path):
    def check(folder: Path, fs: FailingFileSystem, has_succeeded: bool) -> None:
        assert has_succeeded == (not fs.has_failed)
        assert ours(folder) in ([], ["recipe.json"])
        assert not (folder / "recipe.json").exists() or (folder / "recipe.json").read_bytes() == b"new" * 999
        create_file(folder / "recipe.json", b"new" * 999)  # the same again succeeds

    fail_everywhere(
        tmp_path,
        nothing,
        lambda folder, fs: create_file(folder / "recipe.json", b"new" * 999, fs=fs),
        check,
    )


def test_a_published_folder_has_one_name(tmp_path: Path):
    def prepare(folder: Path) -> None:
        (folder / ".final.tmp-0123456789abcdef").mkdir()
        (folder / ".final.tmp-0123456789abcdef" / "file").write_bytes(b"content")

    def check(folder: Path, fs: FailingFileSystem, has_succeeded: bool) -> None:
        assert has_succeeded == (not fs.has_failed)
        (only,) = folder.iterdir()
        assert (only / "file").read_bytes() == b"content"
        assert not has_succeeded or only.name == "final"

    fail_everywhere(
        tmp_path,
        prepare,
        lambda folder, fs: publish_folder(folder / ".final.tmp-0123456789abcdef", folder / "final", fs=fs),
        check,
    )


def test_no_acknowledged_event_is_lost_and_the_log_stays_poisoned(tmp_path: Path):
    acknowledged: list[int] = []

    def act(folder: Path, fs: FileSystem) -> None:
        acknowledged.clear()
        log = EventLog.create(folder / "metrics.jsonl", RUN_ID, fs=fs, clock=ToldClock())
        for event in events(6):
            try:
                acknowledged.append(log.append(event).seq)
            except StorageError:
                size = (folder / "metrics.jsonl").stat().st_size
                with pytest.raises(StorageError, match="an earlier failure ended"):
                    log.append(event)
                with pytest.raises(StorageError, match="an earlier failure ended"):
                    log.sync()
                log.close()
                assert (folder / "metrics.jsonl").stat().st_size == size
                raise
        log.close()

    def check(folder: Path, fs: FailingFileSystem, has_succeeded: bool) -> None:
        assert has_succeeded == (not fs.has_failed)
        if not (folder / "metrics.jsonl").exists():
            assert acknowledged == []
            return
        recovered = [line.event for line in read_log(folder / "metrics.jsonl")]
        assert recovered == events(6)[: len(recovered)]
        assert len(acknowledged) <= len(recovered) <= len(acknowledged) + 1
        quarantine_tail(folder)
        with EventLog.open_for_append(folder / "metrics.jsonl", RUN_ID) as log:
            for event in events(6)[len(recovered) :]:
                log.append(event)
        assert [line.event for line in read_log(folder / "metrics.jsonl")] == events(6)

    fail_everywhere(tmp_path, nothing, act, check)


def test_a_torn_tail_is_copied_before_it_is_cut_and_doing_it_again_ends_it(tmp_path: Path):
    torn = b'{"event":"note","seq":9' * 100
    whole = b""

    def prepare(folder: Path) -> None:
        nonlocal whole
        whole = write_log(folder / "metrics.jsonl", events(3))
        (folder / "metrics.jsonl").write_bytes(whole + torn)

    def check(folder: Path, fs: FailingFileSystem, has_succeeded: bool) -> None:
        assert has_succeeded == (not fs.has_failed)
        log = (folder / "metrics.jsonl").read_bytes()
        copies = [path.read_bytes() for path in (folder / "quarantine").glob("tail-*")]
        assert log in {whole, whole + torn}
        assert copies in ([], [torn])
        assert torn in copies or log == whole + torn
        quarantine_tail(folder)
        assert (folder / "metrics.jsonl").read_bytes() == whole
        assert [path.read_bytes() for path in (folder / "quarantine").glob("tail-*")] == [torn]

    fail_everywhere(tmp_path, prepare, lambda folder, fs: quarantine_tail(folder, fs=fs), check)


def test_a_log_that_cannot_be_opened_is_not_changed(tmp_path: Path):
    whole = b""

    def prepare(folder: Path) -> None:
        nonlocal whole
        whole = write_log(folder / "metrics.jsonl", events(3))

    def check(folder: Path, fs: FailingFileSystem, has_succeeded: bool) -> None:
        assert has_succeeded == (not fs.has_failed)
        assert (folder / "metrics.jsonl").read_bytes() == whole

    fail_everywhere(
        tmp_path,
        prepare,
        lambda folder, fs: EventLog.open_for_append(folder / "metrics.jsonl", fs=fs).close(),
        check,
    )


def test_a_lock_that_cannot_be_taken_is_free(tmp_path: Path):
    def act(folder: Path, fs: FileSystem) -> None:
        with RunLock(folder, fs=fs):
            assert lock_state(folder).state == "held"

    def check(folder: Path, fs: FailingFileSystem, has_succeeded: bool) -> None:
        assert has_succeeded == (not fs.has_failed)
        try:
            RunLock(folder).close()
        except LockedError as error:
            raise AssertionError("a failed start kept the lock") from error

    fail_everywhere(tmp_path, nothing, act, check)


@pytest.mark.parametrize("number", range(6))
def test_reading_reports_the_system_s_errors_as_such(tmp_path: Path, number: int):
    write_log(tmp_path / "metrics.jsonl", events(3))
    fs = FailingFileSystem(number)
    try:
        list(read_log(tmp_path / "metrics.jsonl", fs=fs))
    except StorageError:
        assert fs.has_failed
    else:
        assert not fs.has_failed
