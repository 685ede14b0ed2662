"""Runs a pilot: each stage is built once, recorded when it is done, and verified ever after.

What is recorded is never built again and damage is never built over: it is reported, with the folder to remove.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ledger.errors import LedgerError, RefusedError, VerificationError
from ledger.pilot.config import PilotConfig
from ledger.pilot.stage import Evidence, Stage, StageOutcome, StageSettings
from ledger.pilot.stages import make_stages
from ledger.records.pilot import StageRecord
from ledger.storage.canonical import digest_of
from ledger.storage.documents import read_document, write_document
from ledger.storage.files import ensure_folder, ensure_folders
from ledger.storage.filesystem import OS
from ledger.storage.lock import RunLock
from ledger.storage.mounts import refuse_network_file_system

__all__ = ["STAGES", "StageFailedError", "run_pilot"]

STAGES = ("prepare", "overfit", "acceptance", "stability", "resume")
"""The stages of a pilot in the order in which they run."""

RECORD = "stage.json"


class StageFailedError(LedgerError):
    """A stage could not be finished or no longer is what was recorded; it names the folder to remove."""


def run_pilot(
    config: PilotConfig,
    *,
    root: Path,
    configs: Path,
    report: Callable[[str, Path | None], None] = lambda _stage, _run_dir: None,
) -> Iterator[StageOutcome]:
    """Run or verify the stages in order and yield what each showed; stops behind the first that fails its gates.

    Args:
        root: the pilot's folder; made if it does not exist.
        configs: the folder that configuration names are relative to.
        report: told the stage, and the run folder being written, again and again while it works.

    Raises:
        StageFailedError: a stage could not be finished, or what is there is damaged or of another configuration.
        LockedError: another process works on this pilot.
        UnsafeError: it lies on a network file system and nobody asked for writing there.
    """
    refuse_network_file_system(root)
    ensure_folders(root)
    settings = StageSettings(root=root, configs=configs, report=report)
    with RunLock(root):
        for stage in make_stages(config, settings):
            outcome = _run_stage(stage)
            yield outcome
            if not outcome.passed:
                return


def _run_stage(stage: Stage) -> StageOutcome:
    ensure_folder(stage.folder)
    inputs = stage.inputs()
    try:
        recorded = _recorded(stage)
        if recorded is None:
            stage.build()
            evidence = stage.inspect()
            write_document(stage.folder / RECORD, _record(stage, inputs, evidence), replace=False)
        else:
            evidence = stage.inspect()
            _require_unchanged(recorded, _record(stage, inputs, evidence))
    except LedgerError as error:
        raise _explained(error, stage) from error
    return StageOutcome(
        stage=stage.name, gates=evidence.gates, passed=evidence.passed, reused=recorded is not None
    )


def _recorded(stage: Stage) -> StageRecord | None:
    path = stage.folder / RECORD
    return read_document(path, StageRecord) if OS.exists(path) else None


def _record(stage: Stage, inputs: dict[str, str], evidence: Evidence) -> StageRecord:
    return StageRecord(
        stage=stage.name,
        fingerprint=digest_of({"stage": stage.name, "inputs": inputs, "parts": {}}),
        inputs=dict(inputs),
        parts={},
        files=evidence.files,
        runs=evidence.runs,
        gates=evidence.gates,
        passed=evidence.passed,
    )


def _require_unchanged(recorded: StageRecord, found: StageRecord) -> None:
    """Insist that a stage is still what its record says.

    Raises:
        RefusedError: it was made with other inputs.
        VerificationError: what it made has changed since.
    """
    changed = sorted(
        name
        for name in recorded.inputs.keys() | found.inputs.keys()
        if recorded.inputs.get(name) != found.inputs.get(name)
    )
    if changed:
        raise RefusedError(
            f"was made with another {', '.join(changed)}", expected="the inputs it was recorded with"
        )
    for name in ("files", "runs", "gates"):
        if getattr(recorded, name) != getattr(found, name):
            raise VerificationError(
                f"its {name} are no longer those that {RECORD} lists",
                expected=str(getattr(recorded, name)),
            )


def _explained(error: LedgerError, stage: Stage) -> StageFailedError:
    failed = StageFailedError(
        f"stage {stage.name} failed: {error}",
        advice=f"nothing was rebuilt; to build the stage again, remove {stage.folder}",
    )
    failed.exit_code = error.exit_code
    return failed
