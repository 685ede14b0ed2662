"""`verify`: every byte of a run, a dataset or a checkpoint against its digest."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ledger import __version__
from ledger.audit.checkpoints import checkpoint_problems
from ledger.audit.files import CheckpointFolder, RunFiles
from ledger.audit.findings import Findings
from ledger.audit.heads import QuotedHead
from ledger.audit.reconciliation import outcome, reconcile
from ledger.audit.subject import find_run, is_checkpoint, is_dataset, is_run, require_folder
from ledger.dataset.verify import verify_dataset
from ledger.errors import InvalidDocumentError, UsageError, VerificationError
from ledger.records.documents import Verdict
from ledger.records.fields import Json
from ledger.records.layout import MANIFEST

__all__ = ["verify"]


def verify(
    path: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    progress: Callable[[int], None] | None = None,
    quoted: QuotedHead | None = None,
) -> Verdict:
    """Rehash a run with its checkpoints and dataset, a dataset, or a single checkpoint.

    `progress` is told, from several threads, of the bytes of a dataset as they are hashed; `quoted` is what somebody
    noted of a run.

    Raises:
        UsageError: the path is empty, absent, no folder, or a folder of runs; a head was quoted of something else.
        InvalidDocumentError: the folder is none of the three, or its manifest is malformed.
        NewerVersionError, UnsafeError, StorageError: as `reconcile`.
    """
    folder = require_folder(path, what="a run, a dataset or a checkpoint")
    if is_run(folder):
        return reconcile(folder, rehash=True, data=data, quoted=quoted)
    if quoted is not None:
        raise UsageError("is no run, and only a run has a head", path=folder, expected="a run folder")
    if is_dataset(folder):
        return _verify_dataset(folder, progress=progress)
    if is_checkpoint(folder):
        return _verify_checkpoint(folder)
    return reconcile(find_run(folder), rehash=True)  # says what is wrong with the path


def _verify_dataset(folder: Path, *, progress: Callable[[int], None] | None) -> Verdict:
    findings = Findings()
    result = verify_dataset(folder, progress=progress)
    for problem in result.problems:
        rule = "LG503" if isinstance(problem.error, VerificationError) else "LG502"
        findings.add(rule, str(problem.error), where=problem.file, severity=problem.severity)
    account = {"kind": "dataset", "metadata_sha256": result.metadata_sha256, "files": result.files}
    return _verdict(findings, checked=["LG502", "LG503"], what="dataset", account=account)


def _verify_checkpoint(folder: Path) -> Verdict:
    files = RunFiles(folder.parent)
    checkpoint = files.checkpoint(folder.name)
    if checkpoint is None:
        raise InvalidDocumentError(
            "does not bear a checkpoint's name", path=folder, expected="step-NNNNNNNN-sNN, and no link"
        )
    findings = Findings()
    _check(files, checkpoint, findings)
    manifest_sha256 = checkpoint.manifest.sha256
    account = {"kind": "checkpoint", "manifest_sha256": manifest_sha256}
    return _verdict(findings, checked=["LG401", "LG402", "LG403"], what="checkpoint", account=account)


def _check(files: RunFiles, checkpoint: CheckpointFolder, findings: Findings) -> None:
    manifest = checkpoint.manifest
    if manifest.document is None:
        findings.add("LG401", f"is not complete: {manifest.error}", where=MANIFEST)
        return
    trainer = files.trainer_state(checkpoint)
    for rule, name, problem in checkpoint_problems(checkpoint, manifest.document, trainer, rehash=True):
        findings.add(rule, problem, where=name or checkpoint.path)
    for name in checkpoint.names:
        if name != MANIFEST and name not in manifest.document.files:
            findings.add("LG406", "is not listed in the checkpoint's manifest", where=name)


def _verdict(findings: Findings, *, checked: list[str], what: str, account: Mapping[str, Json]) -> Verdict:
    verdict = outcome(findings, is_live=False)
    return Verdict(
        tool_version=__version__,
        run_id=None,
        log_head=None,
        verdict=verdict,
        status=f"{what} verified" if verdict == "passed" else f"{what} is not what its manifest says",
        checked=checked,
        not_checked={},
        not_applicable={},
        branch=None,
        spent=None,
        account=dict(account),
        findings=findings.kept,
        finding_counts=findings.counts,
    )
