"""A pilot's records verified again, as a lock needs it: every byte, every head, every verdict, every gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Final

from ledger.audit import reconcile
from ledger.audit.files import inside
from ledger.errors import EvidenceMissingError, LedgerError, RefusedError, UnsafeError, VerificationError
from ledger.maintain.verdicts import VERDICT
from ledger.pilot.datasets import PilotData, token_counts
from ledger.pilot.gates import DEFAULT_GATES, GateBound, measure
from ledger.pilot.kinds import KINDS, STAGES
from ledger.pilot.measure import RunMeasurements, measure_run
from ledger.pilot.metrics import Evidence
from ledger.pilot.numbers import Value
from ledger.pilot.rehearsal import RATED_STAGE, recipe_of
from ledger.pilot.stages import EVALUATION, measured_by_validate
from ledger.pilot.training import final_checkpoint
from ledger.records.documents import Evaluation, Verdict
from ledger.records.fields import is_finite
from ledger.records.layout import MANIFEST
from ledger.records.pilot import Gate, PilotRecord, PilotStage, StageCheckpoint, StageRecord, StageRun
from ledger.storage.digests import hash_file
from ledger.storage.documents import read_document
from ledger.storage.filesystem import OS

__all__ = ["PILOT_RECORD", "STAGE_RECORD", "CheckedRun", "CheckedStage", "check_stages", "read_pilot"]

PILOT_RECORD: Final = "pilot.json"
STAGE_RECORD: Final = "stage.json"
SAME_LOSS: Final = 1e-3
"""Relative difference up to which two evaluations of the same weights on the same text agree: batches may differ."""


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
        EvidenceMissingError: the folder holds no pilot's record, or a stage is not finished or was left out.
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
    if left_out := [name for name in STAGES if name not in {stage.stage for stage in pilot.stages}]:
        raise EvidenceMissingError(
            f"the pilot is a part: pilot.stages left out {', '.join(left_out)}",
            path=root,
            expected="every stage rehearsed",
            advice="run the pilot without pilot.stages; what is there is reused",
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


def check_stages(
    root: Path, pilot: PilotRecord, *, data: PilotData, report: Callable[[str], None] = lambda _: None
) -> list[CheckedStage]:
    """Verify every stage again, in order: files by their digests, runs by an audit of every byte, gates anew.

    Args:
        root: the pilot's folder.
        pilot: its record.
        data: what it was rehearsed on.
        report: told the name of each stage that is being verified.

    Raises:
        EvidenceMissingError: something of it is not there.
        RefusedError: a record is of another stage, did not pass, or a gate misses its bound.
        VerificationError: something is no longer what the record says.
    """
    found: list[CheckedStage] = []
    for stage in pilot.stages:
        report(stage.stage)
        found.append(_check_stage(root, stage, data=data, before=found))
    return found


def _check_stage(
    root: Path, stage: PilotStage, *, data: PilotData, before: list[CheckedStage]
) -> CheckedStage:
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
    kind = KINDS.get(record.stage)
    if (kind is None or kind.purpose is not None) and not record.runs:
        raise _changed(folder / STAGE_RECORD, "names no run", expected="a stage that trains has one")
    if record.stage == "validate" and record.checkpoint is None:
        raise _changed(folder / STAGE_RECORD, "names no checkpoint", expected="the one that it measured")
    _require_default_gates(folder, record)
    control = record.runs[1] if len(record.runs) > 1 else None
    runs = [
        _check_run(folder, run, control=control if run is not control else None, data=data)
        for run in record.runs
    ]
    _require_own_runs(folder, record, before)
    for gate, measured in zip(record.gates, _measured(root, folder, record, runs, data, before), strict=True):
        _check_gate(folder, gate, measured)
    return CheckedStage(name=stage.stage, folder=folder, record=record, runs=runs)


def _require_own_runs(folder: Path, record: StageRecord, before: list[CheckedStage]) -> None:
    """Insist that a stage rests on runs of its own, made for what it rehearses."""
    taken = {run.record.run_id: stage.name for stage in before for run in stage.runs}
    kind = KINDS.get(record.stage)
    for run in record.runs:
        if run.run_id in taken:
            raise _changed(folder / run.path, f"is the run of {taken[run.run_id]}", expected="its own run")
        if kind is not None and run.purpose != kind.purpose:
            expected = f"a run for {kind.purpose}"
            raise _changed(folder / run.path, f"was made for {run.purpose}", expected=expected)
        taken[run.run_id] = record.stage


def _require_default_gates(folder: Path, record: StageRecord) -> None:
    """Insist that a record holds every gate that its stage has by default, those that were switched off included."""
    held = Counter(gate.metric for gate in record.gates)
    asked = Counter(bound.metric or name for name, bound in DEFAULT_GATES.get(record.stage, {}).items())
    if absent := sorted((asked - held).keys()):
        raise _changed(
            folder / STAGE_RECORD,
            f"lists no gate of {', '.join(absent)}",
            expected="every gate that the stage has by default, those that were switched off included",
        )


def _measured(
    root: Path,
    folder: Path,
    record: StageRecord,
    runs: list[CheckedRun],
    data: PilotData,
    before: list[CheckedStage],
) -> list[Value]:
    """Measure every gate of a stage again: from its runs and their verdicts, from the data, from what was evaluated."""
    evidence = Evidence(others=token_counts(data.main))
    if runs:
        others = {} if len(runs) == 1 else {"control_reconciled": runs[1].verdict.verdict}
        evidence = Evidence(run=runs[0].measured, verdict=runs[0].verdict, others=others)
    if record.checkpoint is not None:
        evidence = _of_validation(root, folder, record.checkpoint, data=data, before=before)
    return [measure(gate.metric, gate.window or "all", evidence) for gate in record.gates]  # type: ignore[arg-type]


def _check_run(folder: Path, run: StageRun, *, control: StageRun | None, data: PilotData) -> CheckedRun:
    where = _below(folder, run.path)
    beside = None if control is None else _below(folder, control.path)
    measured = measure_run(where)
    place = data.place_of(recipe_of(where, measured)) if measured.history.sessions else None
    verdict = reconcile(where, rehash=True, control=beside, data=place)
    if (verdict.run_id, verdict.log_head) != (run.run_id, run.log_head):
        raise _changed(
            where, "is not the run, or not as far as, the stage rests on", expected=str(run.log_head)
        )
    for session in measured.history.sessions:
        trained = session.start.identity_sha256
        if trained != run.identity_sha256:
            expected = f"the one on record, {run.identity_sha256}"
            raise _changed(where, f"trained the recipe {trained}", expected=expected)
    facts = measured.history.facts
    if facts is None or facts.purpose != run.purpose:
        raise _changed(where, "was made for another purpose", expected=run.purpose)
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
    return CheckedRun(record=run, folder=where, measured=measured, verdict=verdict)


def _of_validation(
    root: Path, folder: Path, checkpoint: StageCheckpoint, *, data: PilotData, before: list[CheckedStage]
) -> Evidence:
    """Return what `validate` measured, once it is sure that this is the checkpoint, the text and the loss."""
    path = inside(root, checkpoint.path)
    if path is None:
        raise UnsafeError(
            f"names a path that leaves its folder: {checkpoint.path!a}", path=folder / STAGE_RECORD
        )
    if hash_file(path / MANIFEST).sha256 != checkpoint.manifest_sha256:
        raise _changed(path, "is not the checkpoint that was measured", expected=checkpoint.manifest_sha256)
    rated = [run for stage in before if stage.name == RATED_STAGE for run in stage.runs]
    run = next((run for run in rated if run.folder == path.parent.parent), None)
    if run is None or path != final_checkpoint(run.folder):
        raise _changed(
            folder / STAGE_RECORD,
            "measured another checkpoint",
            expected=f"the final one of {RATED_STAGE}'s run",
        )
    evaluation = read_document(folder / EVALUATION, Evaluation)
    if (evaluation.run_id, evaluation.manifest_sha256) != (checkpoint.run_id, checkpoint.manifest_sha256):
        raise _changed(folder / EVALUATION, "is of another checkpoint", expected=checkpoint.manifest_sha256)
    if evaluation.data_sha256 != data.main.metadata_sha256:
        raise _changed(folder / EVALUATION, "is of other text", expected=data.main.metadata_sha256)
    _require_logged_loss(folder, evaluation, run)
    others = measured_by_validate(evaluation, held_out=data.main, trained=data.trained)
    return Evidence(run=run.measured, others=others)


def _require_logged_loss(folder: Path, evaluation: Evaluation, run: CheckedRun) -> None:
    """Insist that the loss is the one that the run itself logged, where it measured the same weights and text."""
    for found in run.measured.history.evaluations():
        measured = (found.split, found.step, found.data_sha256)
        is_same = found.complete and measured == (evaluation.split, evaluation.step, evaluation.data_sha256)
        if is_same and is_finite(found.loss) and is_finite(evaluation.loss):
            logged, read = float(found.loss), float(evaluation.loss)
            if not isclose(logged, read, rel_tol=SAME_LOSS):
                raise _changed(
                    folder / EVALUATION,
                    f"has the loss {read:g}",
                    expected=f"that of the run's log, {logged:g}",
                )


def _check_gate(folder: Path, gate: Gate, measured: Value) -> None:
    """Compare what is measured now with the record, and judge it by the bound that the record holds."""
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
