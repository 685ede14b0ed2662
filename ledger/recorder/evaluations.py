"""Evaluations that are kept: a file of their own that names what was measured."""

from __future__ import annotations

from pathlib import Path

from ledger.checkpoints import CompleteCheckpoint
from ledger.recorder.plan import EvaluationResult
from ledger.records.documents import Evaluation
from ledger.records.fields import as_measurement
from ledger.records.layout import EVALUATIONS
from ledger.records.parts import FileRef, StateDigests
from ledger.storage.atomic import create_file
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import document_bytes
from ledger.storage.files import ensure_folder
from ledger.storage.filesystem import FileSystem

__all__ = ["evaluation_document", "keep_evaluation"]


def evaluation_document(
    result: EvaluationResult,
    *,
    run_id: str,
    step: int,
    of: CompleteCheckpoint | None,
    state: StateDigests | None,
    environment_sha256: str,
) -> Evaluation:
    """Return the record of one measurement: of a checkpoint, or of a final state where no weights are kept."""
    return Evaluation(
        run_id=run_id,
        manifest_sha256=None if of is None else of.manifest_sha256,
        state=state,
        step=step,
        split=result.split,
        data_sha256=result.data_sha256,
        loss=as_measurement(result.loss),
        tokens=result.tokens,
        batches=result.batches,
        complete=result.complete,
        metrics=result.recorded_metrics(),
        environment_sha256=environment_sha256,
    )


def keep_evaluation(run_dir: Path, document: Evaluation, *, session: int, fs: FileSystem) -> FileRef:
    """Write an evaluation into the run, durably, and return its path and digest."""
    data = document_bytes(document)
    path = f"{EVALUATIONS}/{document.split}-step-{document.step:08d}-s{session:02d}.json"
    ensure_folder(run_dir / EVALUATIONS, fs=fs)
    create_file(run_dir / path, data, fs=fs)
    return FileRef(path=path, sha256=sha256_hex(data))
