"""Runs a pilot: each stage is built once, recorded when it is done, and reused from then on.

A stage's folder is named by everything that decides its result, so whether it was built is a look into that folder.
What is recorded is never built again, and damage is never built over: it is reported, with the folder to remove. What
was verified is trusted as long as no file of it changed size or times; else, or when asked to, every byte is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ledger import __version__
from ledger.errors import LedgerError, LockedError, StorageError, VerificationError
from ledger.maintain.verdicts import VERDICT, write_verdict
from ledger.pilot.fingerprint import Fingerprint
from ledger.pilot.gates import gate_notes
from ledger.pilot.kinds import STAGES
from ledger.pilot.plan import PILOT, RECORD, Plan
from ledger.pilot.snapshot import is_unchanged, keep_snapshot, take_snapshot
from ledger.pilot.stage import Found, Stage, StageOutcome
from ledger.records.documents import Verdict
from ledger.records.parts import DataIdentities
from ledger.records.pilot import Gate, PilotRecord, PilotStage, StageRecord, StageRun
from ledger.storage.clock import SystemClock
from ledger.storage.digests import hash_file
from ledger.storage.documents import read_document, write_document
from ledger.storage.files import ensure_folder, ensure_folders
from ledger.storage.filesystem import OS
from ledger.storage.lock import RunLock, lock_state
from ledger.storage.mounts import refuse_network_file_system

__all__ = ["StageFailedError", "run_pilot", "run_stage", "write_pilot"]

WAIT_SECONDS: Final = 0.2
"""How often a stage that another process builds is asked for."""

FINDINGS_SHOWN: Final = 2
"""Findings of a run that are told with its stage; its verdict.json holds all."""


class StageFailedError(LedgerError):
    """A stage could not be finished or no longer is what was recorded; it names the folder to remove."""


def run_pilot(plan: Plan, *, is_rehashing: bool = False) -> Iterator[StageOutcome]:
    """Build or reuse the stages in order and yield what each showed; stops behind the first that fails its gates.

    Args:
        plan: the configuration and its folder, which is made if it does not exist.
        is_rehashing: read every byte of what is there, changed or not.

    Raises:
        StageFailedError: a stage could not be finished, or what is there is damaged.
        ConfigError, StageProcessError: the configuration is not one.
        EvidenceMissingError: a dataset or input file that it names is not there; no folder is made.
        UnsafeError: the folder lies on a network file system and nobody asked for writing there.
    """
    refuse_network_file_system(plan.root)
    if plan.trained:
        plan.resolution  # noqa: B018 - what is wrong with it is said before anything is built
    fingerprints = plan.fingerprints()
    ensure_folders(plan.root)
    plan.keep_digests()
    for name in plan.names:
        if name not in fingerprints:  # the dataset is there now
            plan.forget_resolution()
            fingerprints = plan.fingerprints()
        outcome = run_stage(plan.stage(name, fingerprints), is_rehashing=is_rehashing)
        write_pilot(plan, fingerprints)
        yield outcome
        if not outcome.passed:
            return


def run_stage(stage: Stage, *, is_rehashing: bool = False) -> StageOutcome:
    """Build a stage or reuse what is there; where another process builds it, wait and reuse that."""
    try:
        ensure_folder(stage.folder)
        reused = None if is_rehashing else _unchanged(stage)
        if reused is not None:
            return reused
        with _held(stage):
            reused = None if is_rehashing else _unchanged(stage)
            return reused or _built_or_verified(stage)
    except StageFailedError:
        raise
    except LedgerError as error:
        raise _explained(error, stage) from error


def _unchanged(stage: Stage) -> StageOutcome | None:
    """Return what is recorded of a stage none of whose files changed since it was verified, by the same bounds."""
    recorded = recorded_stage(stage)
    if recorded is None or not is_unchanged(stage.folder, take_snapshot(stage.outputs())):
        return None
    return _outcome(stage, recorded, is_reused=True) if _has_same_bounds(stage, recorded) else None


def recorded_stage(stage: Stage) -> StageRecord | None:
    """Return a stage's record; None where it is not finished.

    Raises:
        InvalidDocumentError: the record is malformed.
        VerificationError: it is that of another stage, or says something else than the fingerprint does.
    """
    path = stage.folder / RECORD
    if not OS.exists(path):
        return None
    recorded = read_document(path, StageRecord)
    if recorded.fingerprint != stage.fingerprint.sha256:
        raise VerificationError(
            "is the record of another stage", path=path, expected=f"fingerprint {stage.fingerprint.sha256}"
        )
    stated = Fingerprint(stage=recorded.stage, inputs=recorded.inputs, parts=recorded.parts)
    if stated.sha256 != recorded.fingerprint:
        raise VerificationError(
            "its inputs and parts do not have the fingerprint that it states: it was edited",
            path=path,
            expected=f"fingerprint {recorded.fingerprint}",
        )
    return recorded


def _built_or_verified(stage: Stage) -> StageOutcome:
    recorded = recorded_stage(stage)
    if recorded is None:
        stage.build()
    before = take_snapshot(stage.outputs())
    found = stage.inspect()
    record = _record(stage, found)
    if recorded is None:
        for path, verdict in found.verdicts.items():
            write_verdict(stage.folder / path, verdict)
        write_document(stage.folder / RECORD, record, replace=False)
        keep_snapshot(stage.folder, take_snapshot(stage.outputs()))
        return _outcome(stage, record, is_reused=False)
    _require_unchanged(stage, recorded, record)
    if not _has_same_bounds(stage, recorded):  # the same evidence, judged anew
        record = record.model_copy(update={"runs": recorded.runs})
        write_document(stage.folder / RECORD, record, replace=True)
        before = take_snapshot(stage.outputs())
    keep_snapshot(stage.folder, before)
    return _outcome(stage, record, is_reused=True)


def _record(stage: Stage, found: Found) -> StageRecord:
    gates = stage.judge(found.evidence)
    return StageRecord(
        stage=stage.name,
        fingerprint=stage.fingerprint.sha256,
        inputs=dict(stage.fingerprint.inputs),
        parts=dict(stage.fingerprint.parts),
        files=found.files,
        runs=found.runs,
        checkpoint=found.checkpoint,
        gates=gates,
        warnings=[note for note in gate_notes(stage.name, stage.chosen(gates)) if note.startswith("LG902")],
        passed=all(gate.passed for gate in gates),
    )


def _require_unchanged(stage: Stage, recorded: StageRecord, found: StageRecord) -> None:
    """Insist that a stage is still what its record says, whatever its gates ask.

    Raises:
        VerificationError: what it made has changed since.
    """
    for run in recorded.runs:
        path = stage.folder / run.path / VERDICT
        if hash_file(path).sha256 != run.verdict_sha256:
            raise VerificationError(
                "is no longer the verdict that was recorded", path=path, expected=run.verdict_sha256
            )
    is_judged_anew = not _has_same_bounds(stage, recorded)
    for name, before, after in (
        ("files", recorded.files, found.files),
        (
            "runs",
            [_without_digest(run) for run in recorded.runs],
            [_without_digest(run) for run in found.runs],
        ),
        ("checkpoint", recorded.checkpoint, found.checkpoint),
        ("gates", recorded.gates, recorded.gates if is_judged_anew else found.gates),
        ("verdict", recorded.passed, recorded.passed if is_judged_anew else found.passed),
    ):
        if before != after:
            raise VerificationError(
                f"its {name} are no longer what {RECORD} lists: {after}", expected=str(before)
            )


def _without_digest(run: StageRun) -> StageRun:
    return run.model_copy(update={"verdict_sha256": ""})  # a newer version may word a verdict differently


def _has_same_bounds(stage: Stage, recorded: StageRecord) -> bool:
    return [_bound(gate) for gate in stage.asked_gates()] == [_bound(gate) for gate in recorded.gates]


def _bound(gate: Gate) -> Gate:
    return gate.model_copy(update={"measured": None, "passed": True})


def _outcome(stage: Stage, record: StageRecord, *, is_reused: bool) -> StageOutcome:
    return StageOutcome(
        stage=stage.name,
        folder=stage.folder,
        gates=record.gates,
        notes=[*_missed(record), *_findings(stage, record), *record.warnings],
        passed=record.passed,
        reused=is_reused,
    )


def _missed(record: StageRecord) -> list[str]:
    return [note for note in gate_notes(record.stage, record.gates) if note.startswith("LG901")]


def _findings(stage: Stage, record: StageRecord) -> Iterator[str]:
    """Yield what the audit found first in each run of a stage that it did not pass."""
    for run in record.runs:
        verdict = read_document(stage.folder / run.path / VERDICT, Verdict)
        if verdict.verdict == "passed":
            continue
        counted = [finding for finding in verdict.findings if finding.waiver is None]
        errors = [finding for finding in counted if finding.severity == "error"]
        missing = [finding for finding in counted if finding.severity == "missing"]
        for found in (errors or missing)[:FINDINGS_SHOWN]:
            yield f"{found.rule} {found.severity}: {stage.name}/{run.path}: {found.message} ({found.where})"


@contextmanager
def _held(stage: Stage) -> Iterator[None]:
    """Hold a stage's lock; while another process holds it, wait and say for whom. One that died holds nothing."""
    while True:
        try:
            lock = RunLock(stage.folder)
        except LockedError:
            holder = lock_state(stage.folder).holder
            stage.say("waiting", note=f"{holder or 'another process'} builds it")
            time.sleep(WAIT_SECONDS)
        else:
            break
    with lock:
        yield


def write_pilot(plan: Plan, fingerprints: Mapping[str, Fingerprint]) -> None:
    """Say which recipe is rehearsed here and which stages it rests on, unless that is what is written."""
    if not plan.trained or any(name not in fingerprints for name in plan.names):
        return
    long_run = plan.resolution.long_run
    target = long_run.config["run"]["target_step"]
    stages = [
        PilotStage(
            stage=name,
            folder=fingerprints[name].folder,
            fingerprint=fingerprints[name].sha256,
            passed=_standing(plan, fingerprints[name]),
        )
        for name in plan.names
    ]
    path = plan.root / PILOT
    before = read_document(path, PilotRecord) if OS.exists(path) else None
    record = PilotRecord(
        tool_version=__version__,
        created=SystemClock().now() if before is None else before.created,
        name=plan.config.name,
        config=dict(long_run.config),
        classes=dict(long_run.classes),
        identity_sha256=long_run.identity_sha256,
        parts=dict(long_run.parts),
        target_step=target,
        tokens_per_update=long_run.tokens_per_update,
        planned_tokens=target * long_run.tokens_per_update,
        data=DataIdentities(train=long_run.train_sha256 or "", validation=long_run.validation_sha256),
        stages=stages,
        passed=all(stage.passed for stage in stages) and set(STAGES) <= set(plan.names),
    )
    if record != before:
        write_document(path, record.model_copy(update={"created": SystemClock().now()}), replace=True)


def _standing(plan: Plan, fingerprint: Fingerprint) -> bool | None:
    """Return what a stage's record says, verified or not yet; None where it is not finished, or cannot be read."""
    path = plan.root / fingerprint.folder / RECORD
    try:
        return read_document(path, StageRecord).passed if OS.exists(path) else None
    except StorageError:
        raise
    except LedgerError:
        return None  # said, with the folder to remove, when the stage's turn comes


def _explained(error: LedgerError, stage: Stage) -> StageFailedError:
    is_recorded = OS.exists(stage.folder / RECORD)
    advice = (
        f"nothing was rebuilt; to build the stage again, remove {stage.folder}"
        if is_recorded
        else f"the same command goes on from here; to build the stage from nothing, remove {stage.folder}"
    )
    if isinstance(error, StorageError):  # nothing says that the stage is at fault
        advice = "nothing was rebuilt; the same command goes on from here once the system allows it"
    failed = StageFailedError(f"stage {stage.name} failed: {error}", advice=advice)
    failed.exit_code = error.exit_code
    return failed
