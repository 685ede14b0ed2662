"""What the gates judged is measured again before a lock rests on it: whoever edits a stage's record does not pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.dataset.manifest import open_dataset
from ledger.errors import EvidenceMissingError, LedgerError, RefusedError, VerificationError
from ledger.maintain.verdicts import write_verdict
from ledger.pilot.datasets import PilotData
from ledger.pilot.gates import DEFAULT_GATES, GateBound, judge
from ledger.pilot.kinds import KINDS, STAGES
from ledger.pilot.measure import measure_run
from ledger.pilot.metrics import Evidence
from ledger.pilot.recheck import check_stages, read_pilot
from ledger.pilot.stages import measured_by_validate
from ledger.pilot.training import final_checkpoint, stage_run
from ledger.records.documents import Evaluation
from ledger.records.pilot import Gate, PilotStage, StageCheckpoint, StageFile, StageRecord
from ledger.storage.digests import hash_file
from ledger.storage.documents import read_document, write_document
from tests.ledger.audit.conftest import copy_of, healthy_run
from tests.ledger.report.test_pilot_page import list_stages
from tests.support.toy import DATA_SHA256

__all__ = ["copy_of", "healthy_run"]

FINGERPRINT = "0" * 64
PILOT: Any = SimpleNamespace(
    stages=[
        PilotStage(stage=name, folder=f"{name}-0", fingerprint=FINGERPRINT, passed=True)
        for name in ("stability", "validate")
    ]
)
ANY: dict[str, dict[str, GateBound | None]] = {
    stage: dict.fromkeys(DEFAULT_GATES[stage]) for stage in ("stability", "validate")
}
"""A toy is measured like any run, and nothing is asked of it."""


def write_stage(root: Path, stage: str, evidence: Evidence, **rest: Any) -> None:
    gates = judge(stage, ANY[stage], evidence)
    values = {"stage": stage, "fingerprint": FINGERPRINT, "inputs": {}, "parts": {}, "files": [], "runs": []}
    record = StageRecord.model_validate(values | rest | {"gates": gates, "passed": True})
    write_document(root / f"{stage}-0" / "stage.json", record, replace=True)


def rewrite(root: Path, stage: str, change: Callable[[list[Gate]], list[Gate]]) -> None:
    path = root / f"{stage}-0" / "stage.json"
    record = read_document(path, StageRecord)
    write_document(path, record.model_copy(update={"gates": change(record.gates)}), replace=True)


def write_evaluation(root: Path, **changes: Any) -> None:
    """Write what `validate` measured, and its record: the loss of the run's own last evaluation, if nothing else."""
    run_dir, data = root / "stability-0" / "run", data_of(root)
    run, checkpoint = measure_run(run_dir), final_checkpoint(run_dir)
    last = run.history.evaluations()[-1]
    sha256 = hash_file(checkpoint / "manifest.json").sha256
    values: dict[str, Any] = {
        "run_id": run.history.run_id, "manifest_sha256": sha256, "state": None, "step": last.step,
        "split": last.split, "data_sha256": last.data_sha256, "loss": last.loss, "tokens": last.tokens,
        "batches": last.batches, "complete": last.complete, "metrics": {}, "environment_sha256": "2" * 64,
    }  # fmt: skip
    evaluation = Evaluation.model_validate(values | changes)
    digest = write_document(root / "validate-0" / "evaluation.json", evaluation, replace=True)
    others = measured_by_validate(evaluation, held_out=data.main, trained=data.trained)
    named = StageCheckpoint(
        path=checkpoint.relative_to(root).as_posix(),
        run_id=evaluation.run_id,
        step=evaluation.step,
        manifest_sha256=sha256,
    )
    files = [StageFile(path="evaluation.json", sha256=digest)]
    write_stage(root, "validate", Evidence(run=run, others=others), files=files, checkpoint=named)


def data_of(root: Path) -> PilotData:
    """Return the dataset, by the identity under which a toy says that it evaluates."""
    dataset = open_dataset(root / "data")
    dataset.metadata_sha256 = DATA_SHA256
    return PilotData(main=dataset, sources={}, given=None)


@pytest.fixture(autouse=True)
def _toys_rehearse_resuming(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy's run is always made for the same."""
    monkeypatch.setitem(KINDS, "stability", replace(KINDS["stability"], purpose="resume"))


@pytest.fixture
def root(copy_of: Callable[[str], Path], tmp_path: Path) -> Path:
    """The stages `stability` and `validate` of a pilot; its dataset was moved since."""
    found = tmp_path / "pilot"
    (found / "validate-0").mkdir(parents=True)
    (found / "stability-0").mkdir()
    run = found / "stability-0" / "run"
    copy_of("on_dataset").rename(run)
    (tmp_path / "on_dataset-data").rename(found / "data")
    verdict = reconcile(run, rehash=True, data=found / "data")
    evidence = Evidence(run=measure_run(run), verdict=verdict)
    write_verdict(run, verdict)
    write_stage(found, "stability", evidence, runs=[stage_run(run, verdict=verdict)])
    write_evaluation(found)
    return found


def check(root: Path) -> list[str]:
    return [stage.name for stage in check_stages(root, PILOT, data=data_of(root))]


def refused(root: Path, match: str, *, error: type[LedgerError] = VerificationError) -> None:
    with pytest.raises(error, match=match):
        check(root)


def test_what_was_measured_and_still_is_there_holds(root: Path):
    assert check(root) == ["stability", "validate"]


@pytest.mark.parametrize(
    ("stage", "metric"),
    [
        ("stability", "loss_drop"),
        ("stability", "ended"),
        ("validate", "validation_loss"),
        ("validate", "validation_gap"),
        ("validate", "leaked_share"),
    ],
)
def test_whatever_a_gate_judged_is_measured_again(root: Path, stage: str, metric: str):
    def edit(gates: list[Gate]) -> list[Gate]:
        return [
            gate.model_copy(update={"measured": 0.015625}) if gate.metric == metric else gate
            for gate in gates
        ]

    rewrite(root, stage, edit)
    refused(root, f"{metric} is .* what the record says, 0.015625")


def test_a_gate_that_is_missed_is_not_passed_by_saying_so(root: Path):
    def ask(gates: list[Gate]) -> list[Gate]:
        return [gate.model_copy(update={"gated": True, "min": 99.0, "asked": ">= 99"}) for gate in gates]

    rewrite(root, "validate", ask)
    refused(root, "the gate validation_loss is .*, asked >= 99", error=RefusedError)


def test_a_gate_that_a_stage_has_by_default_cannot_be_left_out_for_another(root: Path):
    def swap(gates: list[Gate]) -> list[Gate]:
        return [*gates[:-1], gates[0]]

    left_out = read_document(root / "validate-0" / "stage.json", StageRecord).gates[-1].metric
    rewrite(root, "validate", swap)
    refused(root, f"lists no gate of {left_out}")


def test_an_evaluation_that_the_log_of_its_run_contradicts_is_found(root: Path):
    write_evaluation(root, loss=0.5)
    refused(root, "has the loss 0.5.*that of the run's log")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"manifest_sha256": "3" * 64}, "is of another checkpoint"),
        ({"data_sha256": "3" * 64}, "is of other text"),
    ],
)
def test_an_evaluation_of_something_else_is_found(root: Path, changes: dict[str, Any], problem: str):
    write_evaluation(root, **changes)
    refused(root, problem)


def test_a_checkpoint_that_changed_since_it_was_measured_is_found(root: Path):
    checkpoint = final_checkpoint(root / "stability-0" / "run")
    checkpoint.rename(checkpoint.with_name("gone"))
    checkpoint.mkdir()
    (checkpoint / "manifest.json").write_bytes(b"[]")
    with pytest.raises(LedgerError):
        check(root)
    record = read_document(root / "validate-0" / "stage.json", StageRecord)
    assert record.checkpoint is not None
    moved = record.checkpoint.model_copy(update={"path": "data"})
    write_document(
        root / "validate-0" / "stage.json", record.model_copy(update={"checkpoint": moved}), replace=True
    )
    with pytest.raises(LedgerError):
        check(root)


def test_a_part_of_a_pilot_is_no_passed_pilot(tmp_path: Path):
    list_stages(tmp_path, *STAGES)
    assert read_pilot(tmp_path).passed
    list_stages(tmp_path, *(name for name in STAGES if name != "overfit"))
    with pytest.raises(EvidenceMissingError, match=r"pilot\.stages left out overfit"):
        read_pilot(tmp_path)


def test_a_run_that_was_made_for_something_else_is_found(root: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(KINDS, "stability", replace(KINDS["stability"], purpose="overfit"))
    refused(root, "was made for resume; expected a run for overfit")


def test_a_record_of_another_recipe_than_its_run_trained_is_found(root: Path):
    path = root / "stability-0" / "stage.json"
    record = read_document(path, StageRecord)
    runs = [run.model_copy(update={"identity_sha256": "1" * 64}) for run in record.runs]
    write_document(path, record.model_copy(update={"runs": runs}), replace=True)
    refused(root, "trained the recipe .*; expected the one on record, 1111")


def test_a_checkpoint_that_is_not_the_final_one_of_stability_is_found(
    root: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "ledger.pilot.recheck.final_checkpoint", lambda run_dir: run_dir / "checkpoints" / "other"
    )
    refused(root, "measured another checkpoint; expected the final one of stability's run")


def test_one_run_is_not_two_stages(root: Path):
    twice = SimpleNamespace(stages=[PILOT.stages[0], PILOT.stages[0]])
    with pytest.raises(VerificationError, match="is the run of stability; expected its own run"):
        check_stages(root, twice, data=data_of(root))  # type: ignore[arg-type]
