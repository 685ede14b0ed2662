"""Where a run may be written: what kind of file system a folder lies on, and what kinds are refused.

Locks, syncs and renames mean what the ledger needs on local file systems. Over a network, or through a program in
user space, they are somebody else's word, so nothing is written there unless it is asked for. What a single folder
really does is probed by `ledger.maintain.doctor`.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ledger.errors import StorageError, UnsafeError
from ledger.storage.atomic import temporary_path
from ledger.storage.filesystem import OS, DurabilityWarning, FileSystem, StrPath

__all__ = [
    "ALLOW_NETWORK_FS",
    "FileSystemClass",
    "Mount",
    "classify",
    "find_mount",
    "is_asked_for",
    "is_case_insensitive",
    "refuse_network_file_system",
]

FileSystemClass = Literal["local", "volatile", "network", "unknown"]
"""`local`: made for this. `volatile`: works, but need not outlive this boot or container. `network`: served by
another machine or by a program, refused unless asked for. `unknown`: nothing is known beforehand."""

ALLOW_NETWORK_FS: Final = "LEDGER_ALLOW_NETWORK_FS"
"""The environment variable that, set to 1, asks for writing to network file systems."""

_LOCAL: Final = frozenset(
    "apfs bcachefs btrfs ext2 ext3 ext4 f2fs hfs jfs nilfs2 reiserfs ufs xfs zfs".split()
)
_VOLATILE: Final = frozenset("aufs devtmpfs overlay ramfs rootfs tmpfs".split())
_NETWORK: Final = frozenset(
    "9p acfs afs beegfs ceph cifs coda davfs drvfs fuse fuseblk gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 "
    "orangefs panfs prl_fs pvfs2 smb2 smb3 smbfs vboxsf virtiofs vmhgfs wekafs".split()
)
_MOUNT_TABLE: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mounted file system: its type, such as `ext4`, where it is mounted, and from what."""

    kind: str
    point: str
    source: str

    @property
    def file_system_class(self) -> FileSystemClass:
        """What may be expected of it."""
        return classify(self.kind)


class _Entry(NamedTuple):
    """One line of the mount table."""

    number: int
    parent: int
    mount: Mount


def classify(kind: str) -> FileSystemClass:
    """Return what may be expected of a type of file system."""
    if kind in _NETWORK or kind.startswith("fuse."):
        return "network"
    if kind in _LOCAL:
        return "local"
    return "volatile" if kind in _VOLATILE else "unknown"


def find_mount(path: StrPath) -> Mount | None:
    """Return the file system that a path lies on, or would lie on; `None` where the system does not tell."""
    try:
        entries = list(_parse(_MOUNT_TABLE.read_bytes()))
    except OSError:
        return None
    return _descend(os.path.realpath(path), entries)


def refuse_network_file_system(path: StrPath, *, is_allowed: bool = False) -> None:
    """Refuse to write to a path on a network file system, unless the caller or the environment asks for it.

    Raises:
        UnsafeError: it lies on one. If it was asked for, that is a `DurabilityWarning` instead.
    """
    mount = find_mount(path)
    if mount is None or mount.file_system_class != "network":
        return
    problem = f"this lies on a network file system ({mount.kind}, mounted on {mount.point})"
    if is_asked_for(is_allowed=is_allowed):
        warnings.warn(
            f"{os.fspath(path)}: {problem}: one writer and durability are its server's word",
            DurabilityWarning,
            stacklevel=3,
        )
        return
    raise UnsafeError(
        problem,
        path=path,
        expected="a local file system: locks and syncs do not mean the same everywhere",
        advice=f"write to a local disk and copy later; or ask for it: --allow-network-fs, {ALLOW_NETWORK_FS}=1",
    )


def is_asked_for(*, is_allowed: bool) -> bool:
    """Tell whether the caller or the environment asks for writing to network file systems."""
    return is_allowed or os.environ.get(ALLOW_NETWORK_FS) == "1"


def is_case_insensitive(folder: StrPath, *, fs: FileSystem = OS) -> bool:
    """Tell whether names in a folder that differ only by case mean the same file, by trying it.

    Raises:
        StorageError: the system refused; a temporary file may be left.
    """
    probe = temporary_path(Path(folder) / "Case")
    with fs.opened(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW):
        pass
    try:
        is_folded = fs.exists(probe.with_name(probe.name.swapcase()))
    except BaseException:
        with suppress(StorageError):  # the first error is the one to report
            fs.unlink(probe)
        raise
    fs.unlink(probe)
    return is_folded


def _parse(table: bytes) -> Iterator[_Entry]:
    for line in table.splitlines():
        first, separator, second = line.partition(b" - ")
        fields, source = first.split(b" "), second.split(b" ")
        if separator and len(fields) >= 6 and len(source) >= 2:
            mount = Mount(_text(source[0]), _text(fields[4]), _text(source[1]))
            yield _Entry(int(fields[0]), int(fields[1]), mount)


def _text(field: bytes) -> str:
    return os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), field))


def _descend(path: str, entries: list[_Entry]) -> Mount | None:
    """Follow the tree of mounts along a path, so that a mount that hides others counts and a hidden one does not."""
    children = {(entry.parent, entry.mount.point): entry for entry in entries}
    numbers = {entry.number for entry in entries}
    roots = [entry for entry in entries if entry.mount.point == "/" and entry.parent not in numbers]
    if not roots:
        return _longest_match(path, entries)
    current = roots[-1]
    for prefix in _prefixes(path):
        while (child := children.get((current.number, prefix))) is not None and child is not current:
            current = child
    return current.mount


def _prefixes(path: str) -> Iterator[str]:
    """Yield `/`, `/a`, `/a/b`, … up to the path itself."""
    yield "/"
    at = ""
    for part in path.strip("/").split("/"):
        at += f"/{part}"
        yield at


def _longest_match(path: str, entries: list[_Entry]) -> Mount | None:
    """Return the deepest mount above a path where the table does not reach the root (a changed root folder)."""
    above = [entry.mount for entry in entries if f"{path}/".startswith(entry.mount.point.rstrip("/") + "/")]
    return max(above, key=lambda mount: len(mount.point), default=None)
