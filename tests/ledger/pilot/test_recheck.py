"""What `validate` measured is looked at again before a lock rests on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.errors import VerificationError
from ledger.pilot.gates import judge
from ledger.pilot.metrics import Evidence
from ledger.pilot.recheck import check_stage
from ledger.records.documents import Evaluation
from ledger.records.pilot import PilotStage, StageCheckpoint, StageFile, StageRecord
from ledger.storage.digests import hash_file
from ledger.storage.documents import write_document

STAGE = PilotStage(stage="validate", folder="validate-0", fingerprint="0" * 64, passed=True)
SWITCHED_OFF = {"validation_gap": None, "leaked_share": None}


def validated(root: Path, *, loss: float = 3.0, of: str | None = None) -> None:
    """Write the records of a stage that measured a loss of 3 nats; the record says that it was `loss`."""
    manifest = root / "checkpoint" / "manifest.json"
    manifest.parent.mkdir()
    manifest.write_bytes(b"{}")
    sha256 = hash_file(manifest).sha256
    folder = root / STAGE.folder
    folder.mkdir()
    evaluation = Evaluation(
        run_id="r1",
        manifest_sha256=of or sha256,
        state=None,
        step=4,
        split="validation",
        data_sha256="1" * 64,
        loss=3.0,
        tokens=64,
        batches=2,
        complete=True,
        metrics={},
        environment_sha256="2" * 64,
    )
    digest = write_document(folder / "evaluation.json", evaluation, replace=False)
    record = StageRecord(
        stage=STAGE.stage,
        fingerprint=STAGE.fingerprint,
        inputs={},
        parts={},
        files=[StageFile(path="evaluation.json", sha256=digest)],
        runs=[],
        checkpoint=StageCheckpoint(path="checkpoint", run_id="r1", step=4, manifest_sha256=sha256),
        gates=judge("validate", SWITCHED_OFF, Evidence(others={"validation_loss": loss})),
        passed=True,
    )
    write_document(folder / "stage.json", record, replace=False)


def test_what_was_measured_and_still_is_there_holds(tmp_path: Path):
    validated(tmp_path)
    assert check_stage(tmp_path, STAGE).record.passed


def test_a_checkpoint_that_changed_since_it_was_measured_is_found(tmp_path: Path):
    validated(tmp_path)
    (tmp_path / "checkpoint" / "manifest.json").write_bytes(b"[]")
    with pytest.raises(VerificationError, match="is not the checkpoint that was measured"):
        check_stage(tmp_path, STAGE)


def test_an_evaluation_of_another_checkpoint_is_found(tmp_path: Path):
    validated(tmp_path, of="3" * 64)
    with pytest.raises(VerificationError, match="is of another checkpoint"):
        check_stage(tmp_path, STAGE)


def test_a_loss_that_was_not_read_is_found(tmp_path: Path):
    validated(tmp_path, loss=2.0)
    with pytest.raises(VerificationError, match="validation_loss is 2"):
        check_stage(tmp_path, STAGE)
