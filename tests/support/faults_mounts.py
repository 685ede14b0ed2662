"""Small file systems of one's own: a tmpfs that fills up, an image on a loop device whose power can be cut."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.storage.filesystem import FileSystem, StrPath
from tests.support.toy import Killed

SHUT_DOWN: Final = 0x8004587D
"""The ioctl by which ext4 and xfs stop at once, as if the power had gone."""
NO_LOG_FLUSH: Final = 2
IMAGE_BYTES: Final = {"ext4": 24 << 20, "xfs": 320 << 20}
_MAKE: Final = {"ext4": ["-q", "-F"], "xfs": ["-q", "-f"]}


@contextmanager
def small_tmpfs(place: Path, *, size_bytes: int) -> Iterator[Path]:
    """Mount a tmpfs of so many bytes; skips the test where nothing may be mounted."""
    place.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(place))
    try:
        yield place
    finally:
        unmount(place)


def enlarge(place: Path, *, size_bytes: int) -> None:
    """Give a mounted tmpfs another size."""
    subprocess.run([_program("mount"), "-o", f"remount,size={size_bytes}", str(place)], check=True)


def make_image(kind: str, image: Path) -> None:
    """Make an empty file system in a file; skips the test where that cannot be done."""
    program = shutil.which(f"mkfs.{kind}")
    if program is None:
        pytest.skip(f"there is no mkfs.{kind} here")
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES[kind])
    subprocess.run([program, *_MAKE[kind], str(image)], check=True, capture_output=True)


def mount_image(image: Path, place: Path) -> None:
    """Mount an image; skips the test where that is not allowed."""
    place.mkdir(exist_ok=True)
    _mount("-o", "loop", str(image), str(place))


def unmount(place: Path) -> None:
    """Unmount what is mounted at a place."""
    subprocess.run([_program("umount"), str(place)], check=True)


def _mount(*arguments: str) -> None:
    done = subprocess.run([_program("mount"), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name} here")
    return found


class CuttableFileSystem(FileSystem):
    """The real file system, syncs and all, whose device stops behind a number of operations below a place."""

    def __init__(self, mount: Path, *, operations: int | None = None) -> None:
        self.count = 0
        self.is_cut = False
        self._mount = mount
        self._left = operations

    def perform(self, operation: str, path: StrPath, function: Any, *arguments: Any, **options: Any) -> Any:
        """Do the operation, or cut the power instead and die."""
        if self.is_cut and function is not os.close:
            raise Killed
        if not self.is_cut and self.count == self._left:
            self.cut()
            if function is os.close:
                function(*arguments)
            raise Killed
        self.count += 1
        return super().perform(operation, path, function, *arguments, **options)

    def cut(self) -> None:
        """Stop the device without writing its journal; what was synced is all that is left."""
        descriptor = os.open(self._mount, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUT_DOWN, struct.pack("I", NO_LOG_FLUSH))
        except OSError as error:
            pytest.skip(f"the power of this file system cannot be cut: {error}")
        finally:
            os.close(descriptor)
        self.is_cut = True
