"""What the doctor says of a folder: of a real one, and of file systems that do one thing wrong."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import StorageError, UsageError
from ledger.maintain import Diagnosis, diagnose
from ledger.maintain.probes import PROBES
from ledger.storage import mounts
from ledger.storage.filesystem import FileSystem


@pytest.fixture(autouse=True)
def on_ext4(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Whatever these tests run on, the system says ext4; returns the table to say something else."""
    table = tmp_path_factory.mktemp("table") / "mountinfo"
    table.write_text("1 0 0:1 / / rw - ext4 /dev/disk rw\n", encoding="utf-8")
    monkeypatch.setattr(mounts, "_MOUNT_TABLE", table)
    monkeypatch.delenv(mounts.ALLOW_NETWORK_FS, raising=False)
    return table


def status_of(diagnosis: Diagnosis, name: str) -> str:
    return next(check.status for check in diagnosis.checks if check.name == name)


def test_a_local_folder_is_safe_and_left_empty(tmp_path: Path):
    diagnosis = diagnose(tmp_path)
    assert {check.name for check in diagnosis.checks} == {"file system", *PROBES}
    assert {check.status for check in diagnosis.checks if check.name != "free space"} == {"ok"}
    assert diagnosis.verdict in ("safe", "safe with warnings")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("xfs", "ok"),
        ("tmpfs", "warning"),
        ("overlay", "warning"),
        ("strangefs", "warning"),
        ("nfs4", "failed"),
    ],
)
def test_the_kind_of_file_system_counts(tmp_path: Path, on_ext4: Path, kind: str, status: str):
    on_ext4.write_text(f"1 0 0:1 / / rw - {kind} source rw\n", encoding="utf-8")
    diagnosis = diagnose(tmp_path)
    assert status_of(diagnosis, "file system") == status
    assert (diagnosis.verdict == "unsafe") == (status == "failed")


def test_a_network_file_system_that_is_asked_for_leaves_a_warning(tmp_path: Path, on_ext4: Path):
    on_ext4.write_text("1 0 0:1 / / rw - fuse.sshfs source rw\n", encoding="utf-8")
    diagnosis = diagnose(tmp_path, allow_network_fs=True)
    assert status_of(diagnosis, "file system") == "warning"
    assert diagnosis.verdict == "safe with warnings"


def test_where_nothing_is_known_the_checks_decide(tmp_path: Path, on_ext4: Path):
    on_ext4.unlink()
    diagnosis = diagnose(tmp_path)
    assert (diagnosis.mount, status_of(diagnosis, "file system")) == (None, "warning")


class Broken(FileSystem):
    """The real file system on which one operation does something else."""

    def __init__(self, operation: str, deed: Callable[..., Any]) -> None:
        self.operation, self.deed = operation, deed

    def perform(
        self, operation: str, path: Any, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        if operation == self.operation:
            return self.deed(function, *arguments, **options)
        return super().perform(operation, path, function, *arguments, **options)


def refuse(code: int) -> Callable[..., None]:
    def deed(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    return deed


def rename_by_copying(_function: Any, source: str, target: str) -> None:
    """Remove, then copy: as some file systems and tools do."""
    Path(target).unlink(missing_ok=True)
    time.sleep(0.01)  # the reader gets its turn, on the busiest machine too
    shutil.copy(source, target)
    Path(source).unlink()


def link_over(_function: Any, source: str, target: str) -> None:
    shutil.copy(source, target)


def fold(function: Callable[..., Any], path: str, **options: Any) -> Any:
    found = Path(path)
    name = found.name.swapcase() if found.name.startswith(".cASE") else found.name
    return function(str(found.parent / name), **options)


def forget_to_append(function: Callable[..., Any], path: str, flags: int, mode: int) -> Any:
    return function(path, flags & ~os.O_APPEND, mode)


class Space:
    """What a full file system says of itself."""

    f_bavail, f_frsize = 10, 4096


BROKEN: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "fsync": ("file sync", "failed", refuse(errno.EIO)),
    "fdatasync": ("file sync", "failed", refuse(errno.EINVAL)),
    "fsync of the folder": ("folder sync", "warning", refuse(errno.EINVAL)),
    "rename": ("rename", "failed", rename_by_copying),
    "link": ("hard link", "failed", refuse(errno.EPERM)),
    "lock": ("lock", "failed", lambda *_: None),
    "open": ("append", "failed", forget_to_append),
    "stat": ("case", "failed", fold),
    "statvfs": ("free space", "warning", lambda *_: Space),
}


@pytest.mark.parametrize("operation", BROKEN)
def test_what_is_not_as_it_should_be_is_found(tmp_path: Path, operation: str):
    check, status, deed = BROKEN[operation]
    fs = Broken(operation, deed)
    diagnosis = diagnose(tmp_path, fs=fs)
    assert status_of(diagnosis, check) == status
    assert (diagnosis.verdict == "unsafe") == (status == "failed")


def test_a_link_that_replaces_is_found(tmp_path: Path):
    assert status_of(diagnose(tmp_path, fs=Broken("link", link_over)), "hard link") == "failed"


def test_locks_that_nobody_gets_are_found(tmp_path: Path):
    assert status_of(diagnose(tmp_path, fs=Broken("lock", refuse(errno.EAGAIN))), "lock") == "failed"


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(StorageError, match="EROFS"):
        diagnose(tmp_path, fs=Broken("mkdir", refuse(errno.EROFS)))
    assert list(tmp_path.iterdir()) == []


def test_a_surprise_in_the_middle_leaves_nothing(tmp_path: Path):
    def surprise(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        diagnose(tmp_path, fs=Broken("link", surprise))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["", "absent", "file"])
def test_what_is_no_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        diagnose(path)
