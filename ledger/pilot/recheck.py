"""A pilot's records verified again, as a lock needs it: every byte, every head, every verdict, every gate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.audit import reconcile
from ledger.audit.files import inside
from ledger.errors import EvidenceMissingError, LedgerError, RefusedError, UnsafeError, VerificationError
from ledger.maintain.verdicts import VERDICT
from ledger.pilot.gates import DEFAULT_GATES, GateBound
from ledger.pilot.measure import RunMeasurements, measure_run
from ledger.pilot.metrics import Evidence, is_metric, metric_named
from ledger.pilot.numbers import Value
from ledger.pilot.stages import EVALUATION
from ledger.records.documents import Evaluation, Verdict
from ledger.records.layout import MANIFEST
from ledger.records.pilot import Gate, PilotRecord, PilotStage, StageCheckpoint, StageRecord, StageRun
from ledger.storage.digests import hash_file
from ledger.storage.documents import read_document
from ledger.storage.filesystem import OS

__all__ = ["PILOT_RECORD", "STAGE_RECORD", "CheckedRun", "CheckedStage", "check_stage", "read_pilot"]

PILOT_RECORD: Final = "pilot.json"
STAGE_RECORD: Final = "stage.json"


@dataclass(frozen=True, kw_only=True)
class CheckedRun:
    """A run of a stage that is still what the stage's record names."""

    record: StageRun
    folder: Path
    measured: RunMeasurements
    verdict: Verdict


@dataclass(frozen=True, kw_only=True)
class CheckedStage:
    """A passed stage of which everything still holds."""

    name: str
    folder: Path
    record: StageRecord
    runs: list[CheckedRun]


def read_pilot(root: Path) -> PilotRecord:
    """Read the record of a passed pilot.

    Raises:
        EvidenceMissingError: the folder holds no pilot's record, or a stage is not finished.
        RefusedError: a stage did not pass.
    """
    path = root / PILOT_RECORD
    if not OS.exists(path):
        raise EvidenceMissingError(
            "there is no record of a pilot",
            path=path,
            expected="the folder of a pilot that ran to its end",
            advice="run it: ledger pilot CONFIG",
        )
    pilot = read_document(path, PilotRecord)
    failed = [stage.stage for stage in pilot.stages if stage.passed is False]
    if failed:
        raise RefusedError(
            f"the pilot failed in {', '.join(failed)}",
            path=root,
            expected="a pilot of which every stage passed",
            advice="see ledger report, change the recipe, run the pilot again",
        )
    open_ = [stage.stage for stage in pilot.stages if stage.passed is None]
    if open_ or not pilot.passed:
        raise EvidenceMissingError(
            f"the pilot is not finished: {', '.join(open_) or 'it does not say that it passed'}",
            path=root,
            expected="every stage finished",
            advice="run the same command again: ledger pilot CONFIG",
        )
    return pilot


def check_stage(root: Path, stage: PilotStage) -> CheckedStage:
    """Verify a stage again: its files by their digests, its runs by an audit of every byte, its gates anew.

    Raises:
        EvidenceMissingError: something of it is not there.
        RefusedError: the record is of another stage, did not pass, or a gate misses its bound.
        VerificationError: something is no longer what the record says.
    """
    folder = root / stage.folder
    if not OS.exists(folder / STAGE_RECORD):
        raise EvidenceMissingError(
            "the stage has no record", path=folder, advice="run the same command again: ledger pilot CONFIG"
        )
    record = read_document(folder / STAGE_RECORD, StageRecord)
    if (record.stage, record.fingerprint) != (stage.stage, stage.fingerprint) or not record.passed:
        raise RefusedError(
            "is not the passed stage that the pilot's record names",
            path=folder / STAGE_RECORD,
            expected=f"{stage.stage}, fingerprint {stage.fingerprint}, passed",
        )
    for file in record.files:
        found = hash_file(_below(folder, file.path)).sha256
        if found != file.sha256:
            raise _changed(folder / file.path, f"has SHA-256 {found}", expected=file.sha256)
    if len(record.gates) < (least := len(DEFAULT_GATES.get(stage.stage, {}))):
        raise _changed(
            folder / STAGE_RECORD,
            f"lists {len(record.gates)} gates",
            expected=f"the {least} that the stage has by default, those that were switched off included",
        )
    if record.checkpoint is not None:
        _check_evaluation(root, folder, record, record.checkpoint)
    control = record.runs[1] if len(record.runs) > 1 else None
    runs = [_check_run(folder, run, control=control if run is not control else None) for run in record.runs]
    for gate in record.gates:
        _check_gate(folder, gate, runs)
    return CheckedStage(name=stage.stage, folder=folder, record=record, runs=runs)


def _check_run(folder: Path, run: StageRun, *, control: StageRun | None) -> CheckedRun:
    where = _below(folder, run.path)
    beside = None if control is None else _below(folder, control.path)
    verdict = reconcile(where, rehash=True, control=beside)
    if (verdict.run_id, verdict.log_head) != (run.run_id, run.log_head):
        raise _changed(
            where, "is not the run, or not as far as, the stage rests on", expected=str(run.log_head)
        )
    kept = where / VERDICT
    if not OS.exists(kept) or hash_file(kept).sha256 != run.verdict_sha256:
        raise _changed(kept, "is not the verdict that was recorded", expected=run.verdict_sha256)
    if verdict.verdict != "passed" or run.verdict != "passed":
        finding = next((one for one in verdict.findings if one.severity in ("error", "missing")), None)
        said = "" if finding is None else f": {finding.rule}: {finding.message}"
        raise RefusedError(
            f"does not pass the audit (now {verdict.verdict}, recorded {run.verdict}){said}",
            path=where,
            expected="a run that passes it, every byte read",
        )
    return CheckedRun(record=run, folder=where, measured=measure_run(where), verdict=verdict)


def _check_evaluation(root: Path, folder: Path, record: StageRecord, measured: StageCheckpoint) -> None:
    """Insist that the checkpoint is the one that was measured, and that the loss is the one that was read."""
    checkpoint = inside(root, measured.path)
    if checkpoint is None:
        raise UnsafeError(
            f"names a path that leaves its folder: {measured.path!a}", path=folder / STAGE_RECORD
        )
    if hash_file(checkpoint / MANIFEST).sha256 != measured.manifest_sha256:
        raise _changed(
            checkpoint, "is not the checkpoint that was measured", expected=measured.manifest_sha256
        )
    evaluation = read_document(folder / EVALUATION, Evaluation)
    if (evaluation.run_id, evaluation.manifest_sha256) != (measured.run_id, measured.manifest_sha256):
        raise _changed(folder / EVALUATION, "is of another checkpoint", expected=measured.manifest_sha256)
    loss = evaluation.loss if evaluation.complete else None
    for gate in record.gates:
        if gate.metric == "validation_loss" and gate.measured != loss:
            raise _changed(
                folder / STAGE_RECORD,
                f"validation_loss is {gate.measured}",
                expected=f"what was read, {loss}",
            )


def _check_gate(folder: Path, gate: Gate, runs: list[CheckedRun]) -> None:
    """Measure a gate again where it is measured from the run, and judge it by the bound that the record holds."""
    measured = _measured(gate, runs[0]) if runs else gate.measured
    if measured != gate.measured:
        raise _changed(
            folder / STAGE_RECORD,
            f"{gate.metric} is {measured}, measured again",
            expected=f"what the record says, {gate.measured}",
        )
    if not gate.gated:
        return
    equal = None if gate.equal is None else str(gate.equal)
    bound = GateBound(min=gate.min, max=gate.max, equal=equal)
    if not gate.passed or not bound.holds(measured):
        raise RefusedError(
            f"the gate {gate.metric} is {measured}, asked {gate.asked}",
            path=folder / STAGE_RECORD,
            expected="every gate within its bound",
        )


def _measured(gate: Gate, run: CheckedRun) -> Value:
    if not is_metric(gate.metric):
        return gate.measured
    metric, evidence = metric_named(gate.metric), Evidence(run=run.measured, verdict=run.verdict)
    if metric.of_run is not None and evidence.run is not None:
        return metric.of_run(evidence.run, gate.window or "all")  # type: ignore[arg-type]
    if metric.of_verdict is not None and evidence.verdict is not None:
        return metric.of_verdict(evidence.verdict)
    return gate.measured


def _below(folder: Path, path: str) -> Path:
    found = inside(folder, path)
    if found is None:
        raise UnsafeError(f"names a path that leaves its folder: {path!a}", path=folder / STAGE_RECORD)
    return found


def _changed(path: Path, problem: str, *, expected: str) -> LedgerError:
    return VerificationError(
        problem,
        path=path,
        expected=expected,
        advice="it was changed since the pilot ran: remove the stage's folder and run the pilot again",
    )
