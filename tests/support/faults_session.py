"""One toy session over an injected file system, tensors included; a dead process leaves it as it is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.recorder import RunRecorder
from ledger.storage.filesystem import OS, FileSystem
from tests.support import toy
from tests.support.clocks import SteppingClock
from tests.support.toy import Killed, ToyLoop, ToySettings, write_safetensors

SETTINGS: Final = ToySettings(
    target_step=4,
    accumulation=1,
    checkpoint_interval=2,
    evaluate_every=None,
    skip_attempts=frozenset({3}),
)
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL
RAISED: Final = dataclasses.replace(SETTINGS, target_step=5)
"""The same under a raised target: an amendment."""


@dataclass
class SeamLoop(ToyLoop):
    """A toy loop that writes its tensors through the seam too."""

    fs: FileSystem = OS

    def save(self, folder: Path, metadata: dict[str, str]) -> None:
        """Write the two tensor files of a checkpoint."""
        files = {
            "model.safetensors": self.model_tensors(),
            "optimizer.safetensors": self.optimizer_tensors(),
        }
        for file, tensors in files.items():
            write_safetensors(_Through(self.fs, folder / file), tensors, metadata)  # type: ignore[arg-type]


class _Through:
    """The one method of a path that the toy's writer needs, through the seam."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self._path = path

    def write_bytes(self, data: bytes) -> None:
        """Write a new file without syncing it, as a training loop does."""
        with self._fs.opened(self._path, NEW_FILE) as descriptor:
            self._fs.write(descriptor, data, path=self._path)


def _begin(recorder: RunRecorder, loop: ToyLoop) -> None:
    toy.begin(recorder, loop, start="auto" if recorder.has_sessions else "fresh")


def session(
    run: Path,
    fs: FileSystem,
    body: Callable[[RunRecorder, ToyLoop], object],
    *,
    settings: ToySettings = SETTINGS,
    begin: Callable[[RunRecorder, ToyLoop], None] = _begin,
) -> None:
    """Start or continue a toy run and do `body` in it; a dead process leaves it as it is."""
    loop = SeamLoop(settings, fs=fs)
    recorder = RunRecorder(run, clock=SteppingClock(), fs=fs)
    try:
        with recorder:
            begin(recorder, loop)
            body(recorder, loop)
    except Killed:
        recorder.abandon()
        raise
