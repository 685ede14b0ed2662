"""Which file system a path lies on, and which are refused; a folder's sync where there is none; names that fold."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import StorageError, UnsafeError, UsageError
from ledger.recorder import RunRecorder
from ledger.storage import filesystem, mounts
from ledger.storage.atomic import replace_file
from ledger.storage.filesystem import DurabilityWarning, FileSystem
from ledger.storage.mounts import classify, find_mount, is_case_insensitive, refuse_network_file_system
from tests.support.toy import ToyLoop, begin


@pytest.fixture
def tell(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the system tell another table of mounts."""
    table = tmp_path_factory.mktemp("table") / "mountinfo"
    monkeypatch.setattr(mounts, "_MOUNT_TABLE", table)

    def write(text: str) -> None:
        table.write_text(text, encoding="utf-8")

    return write


def line(number: int, parent: int, point: str, kind: str, optional: str = "shared:1 ") -> str:
    return f"{number} {parent} 0:{number} / {point} rw,relatime {optional}- {kind} source-{number} rw\n"


class TestFindMount:
    """The mount that a path reaches, not one that only looks like it."""

    def kind(self, path: str) -> str | None:
        found = find_mount(path)
        return None if found is None else found.kind

    def test_the_deepest_counts(self, tell: Callable[[str], None]):
        tell(line(1, 0, "/", "ext4") + line(2, 1, "/mnt", "nfs4") + line(3, 2, "/mnt/fast", "xfs"))
        assert [self.kind(path) for path in ("/", "/mntx/y", "/mnt", "/mnt/a/b", "/mnt/fast/run")] == [
            "ext4",
            "ext4",
            "nfs4",
            "nfs4",
            "xfs",
        ]

    def test_what_is_mounted_over_hides_what_lies_below(self, tell: Callable[[str], None]):
        tell(
            line(1, 0, "/", "ext4")
            + line(2, 1, "/mnt", "ext4")
            + line(3, 2, "/mnt/deep", "nfs")
            + line(4, 2, "/mnt", "tmpfs")
        )
        assert self.kind("/mnt/deep/run") == "tmpfs"

    def test_a_stack_on_one_point_counts_from_the_top(self, tell: Callable[[str], None]):
        tell(line(1, 0, "/", "ext4") + line(2, 1, "/mnt", "tmpfs") + line(3, 2, "/mnt", "cifs"))
        assert self.kind("/mnt/x") == "cifs"

    def test_a_root_that_is_its_own_parent(self, tell: Callable[[str], None]):
        tell(line(1, 1, "/", "rootfs") + line(2, 1, "/", "btrfs"))
        assert self.kind("/x") in ("rootfs", "btrfs")

    def test_odd_characters_in_names(self, tell: Callable[[str], None], tmp_path: Path):
        folder = tmp_path / "a b\\c\n"
        folder.mkdir()
        point = str(folder).replace("\\", "\\134").replace(" ", "\\040").replace("\n", "\\012")
        tell(line(1, 0, "/", "ext4") + line(2, 1, point, "fuse.sshfs", optional=""))
        found = find_mount(folder / "run")
        assert found is not None
        assert (found.kind, found.point, found.source) == ("fuse.sshfs", str(folder), "source-2")

    def test_without_a_root_the_longest_match_counts(self, tell: Callable[[str], None]):
        tell(line(2, 1, "/mnt", "ext4") + line(3, 2, "/mnt/net", "9p"))
        assert [self.kind(path) for path in ("/mnt/net/x", "/mnt/x", "/x")] == ["9p", "ext4", None]

    def test_links_are_followed(self, tell: Callable[[str], None], tmp_path: Path):
        (tmp_path / "link").symlink_to("/mnt/net")
        tell(line(1, 0, "/", "ext4") + line(2, 1, "/mnt/net", "nfs4"))
        assert self.kind(str(tmp_path / "link" / "run")) == "nfs4"

    @pytest.mark.parametrize("table", ["", "garbage\n", "1 2 3\n", "a b - \n - \n"])
    def test_a_table_that_says_nothing(self, tell: Callable[[str], None], table: str):
        tell(table)
        assert find_mount("/x") is None

    def test_no_table_at_all(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
        monkeypatch.setattr(mounts, "_MOUNT_TABLE", tmp_path / "absent")
        assert find_mount("/x") is None
        refuse_network_file_system("/x")

    @pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="needs Linux")
    def test_it_agrees_with_the_system(self):
        assert [self.kind("/proc/self"), self.kind("/sys/kernel")] == ["proc", "sysfs"]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("ext4 xfs btrfs zfs f2fs", "local"),
        ("tmpfs overlay ramfs", "volatile"),
        ("nfs nfs4 cifs smb3 9p fuse fuse.sshfs fuse.s3fs fuseblk lustre ceph virtiofs glusterfs", "network"),
        ("vfat exfat ntfs3 squashfs fusectl", "unknown"),
    ],
)
def test_kinds_are_classified(kinds: str, expected: str):
    assert {classify(kind) for kind in kinds.split()} == {expected}


class TestNetwork:
    """Nothing is written to a network file system unless it is asked for."""

    @pytest.fixture(autouse=True)
    def network(self, tell: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(mounts.ALLOW_NETWORK_FS, raising=False)
        tell(line(1, 0, "/", "nfs4"))

    def test_a_recorder_refuses_and_leaves_nothing(self, tmp_path: Path):
        with (
            pytest.raises(UnsafeError, match=r"network file system \(nfs4") as caught,
            RunRecorder(tmp_path / "run"),
        ):
            pass
        assert caught.value.exit_code == 7
        assert "--allow-network-fs" in str(caught.value)
        assert list(tmp_path.iterdir()) == []

    def test_a_recorder_that_is_asked_for_warns(self, tmp_path: Path):
        recorder = RunRecorder(tmp_path / "run", allow_network_fs=True)
        with (
            pytest.warns(DurabilityWarning, match="one writer and durability are its server's word"),
            recorder,
        ):
            begin(recorder, ToyLoop())

    @pytest.mark.parametrize("value", ["", "0", "yes", "true"])
    def test_the_environment_asks_for_it_by_1_alone(self, value: str, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv(mounts.ALLOW_NETWORK_FS, value)
        with pytest.raises(UnsafeError):
            refuse_network_file_system("/x")
        monkeypatch.setenv(mounts.ALLOW_NETWORK_FS, "1")
        with pytest.warns(DurabilityWarning):
            refuse_network_file_system("/x")


class NoFolderSync(FileSystem):
    """A file system whose folders answer a sync with an error."""

    def __init__(self, code: int) -> None:
        self.code = code

    def perform(
        self, operation: str, path: Any, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        if operation == "fsync of the folder":
            raise OSError(self.code, os.strerror(self.code))
        return super().perform(operation, path, function, *arguments, **options)


class TestFolderSync:
    """What cannot be proved is said once; what failed ends the writing."""

    @pytest.fixture(autouse=True)
    def forgetful(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(filesystem, "_unprovable_devices", set())

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EBADF])
    def test_a_file_system_without_it_is_written_with_one_warning(self, tmp_path: Path, code: int):
        fs = NoFolderSync(code)
        with pytest.warns(DurabilityWarning, match="durability is not provable here"):
            replace_file(tmp_path / "first", b"content", fs=fs)
        replace_file(tmp_path / "second", b"content", fs=fs)  # a second warning would be an error here
        assert (tmp_path / "second").read_bytes() == b"content"

    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
    def test_a_device_that_failed_is_an_error(self, tmp_path: Path, code: int):
        with pytest.raises(StorageError, match=errno.errorcode[code]):
            replace_file(tmp_path / "file", b"content", fs=NoFolderSync(code))


class FoldingCase(FileSystem):
    """A file system on which `NAME` and `name` are the same file."""

    def perform(
        self, operation: str, path: Any, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        if operation in ("open", "stat", "unlink"):
            asked = Path(arguments[0])
            arguments = (str(asked.parent / asked.name.lower()), *arguments[1:])
        return super().perform(operation, path, function, *arguments, **options)


class TestCase:
    """A run is not created where one name stands for two."""

    def test_it_is_told_by_trying_and_nothing_is_left(self, tmp_path: Path):
        assert is_case_insensitive(tmp_path, fs=FoldingCase())
        assert not is_case_insensitive(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_run_is_refused_at_its_creation_and_nothing_is_left(self, tmp_path: Path):
        with (
            pytest.raises(UsageError, match="differ only by case"),
            RunRecorder(tmp_path / "deep" / "run", fs=FoldingCase()),
        ):
            pass
        assert list(tmp_path.iterdir()) == []

    def test_a_run_that_exists_is_continued(self, tmp_path: Path):
        with RunRecorder(tmp_path / "run") as recorder:
            begin(recorder, ToyLoop())
        with RunRecorder(tmp_path / "run", fs=FoldingCase()) as recorder:
            assert recorder.has_sessions

    def test_a_real_file_system_that_folds_case(self, tmp_path: Path):
        image, point = tmp_path / "image", tmp_path / "mounted"
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(16 << 20)
        commands = [["mkfs.ext4", "-q", "-O", "casefold", image], ["mount", "-o", "loop", image, point]]
        if not all(_succeeds(command) for command in commands):
            pytest.skip("needs root, loop devices and ext4 that folds case")
        try:
            folder = point / "folding"
            folder.mkdir()
            if not _succeeds(["chattr", "+F", folder]):
                pytest.skip("needs chattr +F")
            assert is_case_insensitive(folder)
            assert not is_case_insensitive(point)
        finally:
            assert _succeeds(["umount", point])


def _succeeds(command: list[Any]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
