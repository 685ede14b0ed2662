"""Evaluations that are kept: a file of their own that names what was measured."""

from __future__ import annotations

from pathlib import Path

from ledger.checkpoints import CompleteCheckpoint
from ledger.errors import RefusedError
from ledger.recorder.plan import EvaluationResult
from ledger.records.documents import Environment, Evaluation
from ledger.records.fields import as_measurement
from ledger.records.layout import ENVIRONMENTS, EVALUATIONS, SEAL, checkpoint_name
from ledger.records.parts import FileRef, StateDigests
from ledger.storage.atomic import create_file
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import document_bytes, document_sha256, store_by_digest
from ledger.storage.files import ensure_folder
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["evaluation_document", "keep_evaluation", "store_measurement"]


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


def store_measurement(
    result: EvaluationResult,
    *,
    of: CompleteCheckpoint,
    environment: Environment,
    output: Path | None = None,
    fs: FileSystem = OS,
) -> tuple[Evaluation, Path]:
    """Write down a measurement of a checkpoint that no session made; the same measurement again is the same file.

    It goes into the `evaluations/` of the checkpoint's run, with its environment; of a sealed run, which is closed,
    into `<run>.evaluations/` beside it; or to `output` alone.

    Raises:
        RefusedError: `output` exists.
        StorageError: the system refused; no file of that name appeared.
    """
    document = evaluation_document(
        result,
        run_id=of.manifest.run_id,
        step=of.manifest.counters.step,
        of=of,
        state=None,
        environment_sha256=document_sha256(environment),
    )
    data = document_bytes(document)
    if output is not None:
        _require_absent(output)
        create_file(output, data, fs=fs)
        return document, output
    run_dir = of.folder.resolve().parent.parent
    folder = run_dir / EVALUATIONS
    if fs.exists(run_dir / SEAL):
        run_dir = folder = run_dir.with_name(f"{run_dir.name}.{EVALUATIONS}")
    ensure_folder(folder, fs=fs)
    store_by_digest(run_dir / ENVIRONMENTS, environment, fs=fs)
    mark = checkpoint_name(step=document.step, session=of.manifest.session)
    path = folder / f"{document.split}-{mark}-{sha256_hex(data)[:16]}.json"
    create_file(path, data, fs=fs)
    return document, path


def _require_absent(output: Path) -> None:
    if OS.exists(output):
        raise RefusedError(
            "it exists already and is not overwritten", path=output, advice="choose another name"
        )


def keep_evaluation(run_dir: Path, document: Evaluation, *, session: int, fs: FileSystem) -> FileRef:
    """Write an evaluation into the run, durably, and return its path and digest."""
    data = document_bytes(document)
    path = f"{EVALUATIONS}/{document.split}-step-{document.step:08d}-s{session:02d}.json"
    ensure_folder(run_dir / EVALUATIONS, fs=fs)
    create_file(run_dir / path, data, fs=fs)
    return FileRef(path=path, sha256=sha256_hex(data))
