"""Rehashes the files of datasets while something else goes on, in a thread that takes little of the machine."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from ledger.dataset.manifest import TOKENIZER_NAME, Dataset, listed_files
from ledger.errors import LedgerError, UsageError, VerificationError
from ledger.storage.digests import hash_file

__all__ = ["BackgroundVerification", "FileToVerify", "VerifiedFile", "files_to_verify"]

_NICE: Final = 19
_ADVICE: Final = (
    "restore the file from where the dataset was prepared; what was trained on it since is in doubt"
)


@dataclass(frozen=True, kw_only=True)
class FileToVerify:
    """One file and what it must hash to."""

    name: str
    """What it is called in records: the file's name, behind the name of its source where there are several."""
    path: Path
    sha256: str


@dataclass(frozen=True, kw_only=True)
class VerifiedFile:
    """A file whose bytes were found as recorded."""

    name: str
    sha256: str
    seconds: float
    """Time spent reading and hashing, without the pauses."""


def files_to_verify(dataset: Dataset, *, prefix: str = "") -> list[FileToVerify]:
    """Return the array files of a dataset, in the order of its manifest."""
    return [
        FileToVerify(name=prefix + name, path=dataset.directory / name, sha256=sha256)
        for name, sha256 in listed_files(dataset.manifest).items()
        if name != TOKENIZER_NAME
    ]


class BackgroundVerification:
    """Rehashes files one after the other, once, in a thread of the lowest priority.

    The thread only puts results aside. Whoever started it takes them with `drain`, in its own thread and when it
    suits, and so learns of damage there.
    """

    def __init__(self, files: Iterable[FileToVerify], *, share: float = 0.25) -> None:
        """Prepare to verify.

        Args:
            files: what to rehash.
            share: the part of the time that the thread works, above 0 and up to 1; it sleeps for the rest.
        """
        if not 0 < share <= 1:
            raise UsageError(f"the share of the verification is {share}", expected="above 0 and up to 1")
        self._files = list(files)
        self._pause_ratio = (1 - share) / share
        self._results: SimpleQueue[VerifiedFile | LedgerError] = SimpleQueue()
        self._failure: LedgerError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-verify", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def drain(self) -> list[VerifiedFile]:
        """Return the files that were verified since the last call.

        Raises:
            VerificationError: a file is damaged; the message names it.
            LedgerError: a file could not be read.
        """
        verified: list[VerifiedFile] = []
        while self._failure is None:
            try:
                result = self._results.get_nowait()
            except Empty:
                return verified
            if isinstance(result, LedgerError):
                self._failure = result
            else:
                verified.append(result)
        if verified:
            return verified  # what was found in order is told first; the next call raises
        raise self._failure

    def wait(self) -> None:
        """Wait until every file was looked at."""
        self._thread.join()

    def close(self) -> None:
        """Stop within a block of the file at hand; what was not drained is forgotten."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        _lower_priority()
        for file in self._files:
            try:
                result = self._verify(file)
            except _StoppedError:
                return
            except LedgerError as error:
                self._results.put(error)
                return
            self._results.put(result)

    def _verify(self, file: FileToVerify) -> VerifiedFile:
        pace = _Pace(self._stop, pause_ratio=self._pause_ratio)
        _, found = hash_file(file.path, progress=pace.take)
        if found != file.sha256:
            raise VerificationError(
                f"the bytes of {file.name} changed: their SHA-256 is {found}",
                path=file.path,
                expected=file.sha256,
                advice=_ADVICE,
            )
        return VerifiedFile(name=file.name, sha256=found, seconds=pace.seconds)


class _StoppedError(Exception):
    """The verification was asked to stop."""


class _Pace:
    """Sleeps after each block as long as its share of the time asks for, and notices a stop."""

    def __init__(self, stop: threading.Event, *, pause_ratio: float) -> None:
        self.seconds = 0.0
        self._stop = stop
        self._pause_ratio = pause_ratio
        self._since = time.monotonic()

    def take(self, _: int) -> None:
        """Account for one block."""
        worked = time.monotonic() - self._since
        self.seconds += worked
        if self._stop.wait(worked * self._pause_ratio):
            raise _StoppedError
        self._since = time.monotonic()


def _lower_priority() -> None:
    if sys.platform == "linux":  # there the priority is each thread's own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
