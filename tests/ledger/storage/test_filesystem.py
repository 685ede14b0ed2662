from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import StorageError
from ledger.storage.filesystem import OS, FileSystem, error_number
from tests.ledger.storage.building import FailingFileSystem


class Interrupted(FileSystem):
    """Interrupts every operation twice before it does it, and writes at most three bytes at once."""

    def __init__(self) -> None:
        self.interruptions = 0

    def perform(
        self, operation: str, path: Any, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        self.interruptions += 1
        if self.interruptions % 3 and operation != "close":
            raise InterruptedError(errno.EINTR, "interrupted")
        if operation == "write":
            descriptor, data = arguments
            return os.write(descriptor, data[:3])
        return super().perform(operation, path, function, *arguments, **options)


def test_interrupted_calls_and_short_writes_are_completed(tmp_path: Path):
    fs = Interrupted()
    with fs.opened(tmp_path / "a", os.O_WRONLY | os.O_CREAT) as descriptor:
        fs.write(descriptor, b"0123456789", path=tmp_path / "a")
        fs.sync(descriptor, path=tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_write_that_stops_taking_bytes_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "write", lambda *_: 0)
    with (
        OS.opened(tmp_path / "a", os.O_WRONLY | os.O_CREAT) as descriptor,
        pytest.raises(StorageError, match="accepted no more"),
    ):
        OS.write(descriptor, b"abc", path="a")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_failed_write_is_not_tried_again(tmp_path: Path, code: int):
    fs = FailingFileSystem(1, code=code)
    with (
        pytest.raises(StorageError) as caught,
        fs.opened(tmp_path / "a", os.O_WRONLY | os.O_CREAT) as descriptor,
    ):
        fs.write(descriptor, b"abc", path=tmp_path / "a")
    assert fs.operations == ["open", "write", "close"]
    assert error_number(caught.value) == code
    assert str(caught.value).startswith(f"{tmp_path / 'a'}: could not write: ")
    assert errno.errorcode[code] in str(caught.value)
    assert caught.value.advice
    assert caught.value.exit_code == 4


def test_a_failed_close_is_not_swallowed(tmp_path: Path):
    fs = FailingFileSystem(1)
    with (
        pytest.raises(StorageError, match="could not close"),
        fs.opened(tmp_path / "a", os.O_WRONLY | os.O_CREAT),
    ):
        pass


def test_the_first_error_outranks_that_of_closing(tmp_path: Path):
    fs = FailingFileSystem(1)
    with pytest.raises(ZeroDivisionError) as caught, fs.opened(tmp_path / "a", os.O_WRONLY | os.O_CREAT):
        raise ZeroDivisionError
    assert "could not close" in caught.value.__notes__[0]


def test_files_are_not_passed_on_to_other_programs(tmp_path: Path):
    with OS.opened(tmp_path / "a", os.O_WRONLY | os.O_CREAT) as descriptor:
        assert not os.get_inheritable(descriptor)


def test_exists_sees_dangling_links(tmp_path: Path):
    (tmp_path / "a").symlink_to("nowhere")
    assert OS.exists(tmp_path / "a")
    assert not OS.exists(tmp_path / "b")
