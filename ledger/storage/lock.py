"""The writer's lock: one writer a run, by `flock` on a permanent file whose content says who holds it.

The file is never removed, since a removed lock file is how two writers come to hold "the" lock. The system releases
the lock when its holder ends, however it ends.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from ledger.errors import EvidenceMissingError, InvalidDocumentError, LockedError, StorageError, UnsafeError
from ledger.records.layout import LOCK
from ledger.storage.canonical import canonical_json
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.files import READ_FLAGS, open_regular_file, opened_regular_file
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.forks import abandon_in_children
from ledger.storage.log_reader import FileIdentity
from ledger.storage.processes import boot_id, hostname
from ledger.storage.strict_json import parse_json

__all__ = ["LockHolder", "LockState", "RunLock", "claim_log", "lock_state"]

_MAX_CONTENT_BYTES: Final = 4096
_PATIENCE_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.01
_SYSTEM_CLOCK: Final = SystemClock()


class LockHolder(BaseModel):
    """Who holds a lock, or held it last: what run.lock says."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    host: str
    pid: int
    boot_id: str
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.started}"


class LockState(NamedTuple):
    """Whether a writer holds a run at this moment, and who holds it or held it last.

    `unknown`: there is no lock file, or the file system does not tell.
    """

    state: Literal["held", "free", "unknown"]
    holder: LockHolder | None


class RunLock:
    """The lock of one run folder, held until `close()`, the end of a `with` block or the end of the process.

    A forked child does not hold it: its copy is closed when it is born.
    """

    def __init__(self, run_dir: StrPath, *, clock: Clock = _SYSTEM_CLOCK, fs: FileSystem = OS) -> None:
        """Take the lock.

        Raises:
            LockedError: another writer holds it; names the holder.
            UnsafeError: the lock file is no regular file, or keeps being replaced.
            StorageError: the system refused.
        """
        self._fs = fs
        self._path = Path(run_dir) / LOCK
        self._descriptor: int | None = None
        self._folder: int | None = fs.open(run_dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._descriptor = self._take()
            self.holder = LockHolder(host=hostname(), pid=os.getpid(), boot_id=boot_id(), started=clock.now())
            self._write_holder(self._descriptor)
        except BaseException:
            with suppress(StorageError):  # the first error is the one to report
                self.close()
            raise
        abandon_in_children(self)

    def close(self) -> None:
        """Release the lock; nothing happens if that was done.

        Raises:
            StorageError: the system refused; the lock is released nevertheless.
        """
        with ExitStack() as stack:
            for descriptor in self._take_descriptors():
                stack.enter_context(self._fs.closing(descriptor, path=self._path))

    def abandon(self) -> None:
        """Close this process's copy; the lock stays with the parent process."""
        for descriptor in self._take_descriptors():
            with suppress(OSError):
                os.close(descriptor)

    def _take_descriptors(self) -> list[int]:
        taken = [number for number in (self._descriptor, self._folder) if number is not None]
        self._descriptor = self._folder = None
        return taken

    def require_held(self) -> None:
        """Make sure that run.lock, in the folder that was opened, still names the file that is locked here.

        A folder that was moved is still that folder.

        Raises:
            UnsafeError: it was closed, removed or replaced, so that a second writer could start.
            StorageError: the run folder was deleted, or the system refused.
        """
        if self._descriptor is not None and self._is_in_place(self._descriptor):
            return
        if self._folder is not None:
            self._fs.locate(self._folder, path=self._path.parent)
        raise UnsafeError(
            "the lock file was removed or replaced while this writer held it",
            path=self._path,
            advice="stop every writer of this run, then start one again; never remove the lock file",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self) -> int:
        """Lock the file that run.lock names, also after the lock is taken; wait a moment for a reader's probe."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            descriptor = open_regular_file(self._path, flags=os.O_RDWR | os.O_CREAT, fs=self._fs)
            try:
                is_locked = self._fs.lock(descriptor, path=self._path)
                if is_locked and self._is_in_place(descriptor):
                    return descriptor
            except BaseException:
                with suppress(StorageError):  # the first error is the one to report
                    self._fs.close(descriptor, path=self._path)
                raise
            holder = None if is_locked else _read_holder(descriptor, self._path, fs=self._fs)
            self._fs.close(descriptor, path=self._path)
            if time.monotonic() > deadline:
                raise self._refusal(holder, is_locked=is_locked)
            time.sleep(_PAUSE_SECONDS)

    def _is_in_place(self, descriptor: int) -> bool:
        named = self._fs.look(self._path, directory=self._folder)
        if named is None:
            return False
        locked = self._fs.fstat(descriptor, path=self._path)
        return FileIdentity(named.st_dev, named.st_ino) == FileIdentity(locked.st_dev, locked.st_ino)

    def _refusal(self, holder: LockHolder | None, *, is_locked: bool) -> LockedError | UnsafeError:
        if is_locked:
            return UnsafeError(
                "the lock file keeps being replaced",
                path=self._path,
                advice="find out which program removes or replaces it; it must stay",
            )
        return LockedError(
            f"another writer holds this run: {holder or 'it does not say who'}",
            path=self._path,
            advice="wait until it ends, or stop it; the lock is released by its end, never by removing the file",
        )

    def _write_holder(self, descriptor: int) -> None:
        content = canonical_json(self.holder.model_dump()) + b"\n"
        self._fs.truncate(descriptor, 0, path=self._path)
        self._fs.write(descriptor, content, path=self._path)


def claim_log(descriptor: int, *, path: StrPath, fs: FileSystem) -> None:
    """Lock an open log itself, so that a lock file which somebody removed lets no second writer in.

    Raises:
        LockedError: another writer has the log open.
        StorageError: the system refused.
    """
    if not fs.lock(descriptor, path=path):
        raise LockedError(
            "another writer has this log open although the lock file is free: it was removed or replaced",
            path=path,
            advice="stop that writer, or wait until it ends; never remove the lock file",
        )


def lock_state(run_dir: StrPath, *, fs: FileSystem = OS) -> LockState:
    """Tell whether a writer holds a run, without writing anything and without keeping a writer out.

    It tries a shared lock for an instant, on a descriptor that is open for reading only; a writer that starts in this
    very instant waits for it.

    Raises:
        UnsafeError: the lock file is no regular file.
        StorageError: the system refused.
    """
    path = Path(run_dir) / LOCK
    try:
        with opened_regular_file(path, flags=READ_FLAGS, fs=fs) as descriptor:
            is_free = fs.lock(descriptor, path=path, shared=True)
            return LockState("free" if is_free else "held", _read_holder(descriptor, path, fs=fs))
    except EvidenceMissingError:
        return LockState("unknown", None)


def _read_holder(descriptor: int, path: Path, *, fs: FileSystem) -> LockHolder | None:
    """Return what the lock file says, or `None` if it says nothing that can be read (a holder may be writing it)."""
    content = fs.pread(descriptor, _MAX_CONTENT_BYTES, 0, path=path)
    try:
        return LockHolder.model_validate(parse_json(content, path=path))
    except (InvalidDocumentError, ValidationError):
        return None
