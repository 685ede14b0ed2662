"""A pilot as a scenario of the fault suite: a stage is built and recorded, then the pilot that it belongs to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from ledger.pilot.fingerprint import Fingerprint
from ledger.pilot.gates import GateBound
from ledger.pilot.metrics import Evidence
from ledger.pilot.progress import silent
from ledger.pilot.runner import run_stage, write_pilot
from ledger.pilot.snapshot import DigestCache
from ledger.pilot.stage import Found, Place
from ledger.pilot.training import Resume
from ledger.storage.atomic import replace_file
from ledger.storage.files import ensure_folder
from ledger.storage.filesystem import OS, FileSystem
from tests.support.faults import diverted

STAGE: Final = Fingerprint(stage="stage", inputs={}, parts={})
LONG_RUN: Final = SimpleNamespace(
    config={"run": {"target_step": 1}},
    classes={},
    identity_sha256="0" * 64,
    parts={},
    tokens_per_update=8,
    train_sha256="0" * 64,
    validation_sha256=None,
)


class _OneFile(Resume):
    """A stage that sets a run aside, as one whose run was never killed, and makes one file."""

    def build(self) -> None:
        """Make the file."""
        self._write_recipe()
        if not OS.exists(self.control_dir):
            ensure_folder(self.run_dir)
            self._set_aside(self.run_dir)
        replace_file(self.folder / "made", b"whole")

    def inspect(self) -> Found:
        """Measure the file."""
        size = len((self.folder / "made").read_bytes())
        return Found(evidence=Evidence(others={"updates": size}))


def pilot_folder(place: Path) -> None:
    """Begin with a pilot in which nothing was rehearsed."""
    (place / "pilot").mkdir(parents=True, exist_ok=True)


def record_pilot(place: Path, fs: Any) -> None:
    """Record a pilot and its stage."""
    fs.watch()
    rehearse(place, fs)
    fs.promise(place / "pilot" / STAGE.folder / "stage.json")
    fs.promise(place / "pilot" / "pilot.json")
    fs.unwatch()


def rehearse(place: Path, fs: FileSystem) -> None:
    """Go through the pilot from wherever its records stand."""
    root = place / "pilot"
    plan: Any = SimpleNamespace(
        root=root,
        names=["stage"],
        trained=["stage"],
        config=SimpleNamespace(name="pilot"),
        resolution=SimpleNamespace(long_run=LONG_RUN),
    )
    with diverted(fs):
        stage = _OneFile(
            STAGE,
            Place(root=root, report=silent),
            asked={"updates": GateBound(min=5)},
            recipe={},
            data=None,
            kill_after_step=1,
        )
        run_stage(stage)
        write_pilot(plan, {"stage": STAGE})
        digests = DigestCache(root / "digests.json")
        digests.sha256(stage.folder / "made")
        digests.keep()
