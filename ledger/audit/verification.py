"""`verify`: every byte of a run, a dataset or a checkpoint against its digest."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from ledger import __version__
from ledger.audit.attestation import Attestation, attested_folder, compare
from ledger.audit.checkpoints import checkpoint_problems, note_master_weights
from ledger.audit.files import CheckpointFolder, RunFiles
from ledger.audit.findings import Findings
from ledger.audit.heads import QuotedHead
from ledger.audit.live_digests import LiveDigestChecker
from ledger.audit.optimizer_steps import OptimizerStepChecker
from ledger.audit.passing import outcome
from ledger.audit.reconciliation import reconcile
from ledger.audit.stream import Checker, Stream
from ledger.audit.subject import find_run, is_checkpoint, is_dataset, is_run, require_folder
from ledger.dataset.verify import verify_dataset
from ledger.errors import (
    InvalidDocumentError,
    NewerVersionError,
    UnsafeError,
    UsageError,
    VerificationError,
)
from ledger.records.documents import Verdict
from ledger.records.fields import Json
from ledger.records.layout import CHECKPOINTS, MANIFEST
from ledger.storage.files import is_folder, require_own_file, require_own_folder
from ledger.storage.filesystem import OS

__all__ = ["verify", "verify_attestation"]


def verify(
    path: str | os.PathLike[str],
    *,
    data: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] | None = None,
    quoted: QuotedHead | None = None,
    attestation: Attestation | None = None,
) -> Verdict:
    """Rehash a run with its checkpoints and dataset, a dataset, or a single checkpoint.

    `progress` is told, from several threads, of the bytes as they are hashed; `quoted` is what somebody noted of a
    run; `attestation` must be about this run or checkpoint.

    Raises:
        UsageError: the path is empty, absent, no folder, or a folder of runs; a head was quoted or an attestation
            given of something else.
        InvalidDocumentError: the folder is none of the three, or its manifest is malformed.
        VerificationError, EvidenceMissingError: the attestation is about something else; see `compare`.
        UnsafeError: a file of a dataset, or of a checkpoint by itself, is a link, a pipe or a folder.
        NewerVersionError, UnsafeError, StorageError: as `reconcile`.
    """
    folder = require_folder(path, what="a run, a dataset or a checkpoint")
    if is_run(folder):
        _compare(attestation, folder, progress=progress)
        verdict = reconcile(folder, rehash=True, data=data, quoted=quoted, progress=progress)
        return _attested(verdict, attestation)
    if quoted is not None:
        raise UsageError("is no run, and only a run has a head", path=folder, expected="a run folder")
    if is_dataset(folder):
        if attestation is not None:
            raise UsageError("is a dataset, and only runs are attested", path=folder, expected="a run folder")
        return _verify_dataset(folder, progress=progress)
    if is_checkpoint(folder):
        _compare(attestation, folder, progress=progress)
        return _attested(_verify_checkpoint(folder, progress=progress), attestation)
    return reconcile(find_run(folder), rehash=True)  # says what is wrong with the path


def verify_attestation(
    attestation: Attestation, *, progress: Callable[[int], object] | None = None
) -> Verdict:
    """Compare an attestation with the run that lies beside it; the rest of that run is not looked at.

    Raises:
        VerificationError, EvidenceMissingError: it is about something else; see `compare`.
    """
    folder = attested_folder(attestation.path)
    findings = Findings()
    if folder is None or not is_folder(folder):
        beside = "no run" if folder is None else f"no {folder.name}"
        findings.skip(
            "attested files", f"there is {beside} beside it; use: ledger verify RUN --attestation FILE"
        )
    else:
        compare(attestation, folder, progress=progress)
        findings.skip("the rest of the run", f"use: ledger verify {folder} --attestation {attestation.path}")
    account: dict[str, Json] = {"kind": "attestation"}
    verdict = _attested(_verdict(findings, checked=[], what="attestation", account=account), attestation)
    if "attested files" not in findings.not_checked:
        return verdict
    return verdict.model_copy(
        update={"verdict": "incomplete", "status": "attestation not compared with a run"}
    )


def _compare(
    attestation: Attestation | None, folder: Path, *, progress: Callable[[int], object] | None
) -> None:
    if attestation is not None:
        compare(attestation, folder, progress=progress)


def _attested(verdict: Verdict, attestation: Attestation | None) -> Verdict:
    """Say in a verdict what was attested; where nobody can tell by whom, it cannot be a passed one."""
    if attestation is None:
        return verdict
    changes: dict[str, Json] = {"account": verdict.account | {"attestation": attestation.account()}}
    if attestation.doubt is not None:
        changes["not_checked"] = verdict.not_checked | {"who attested it": attestation.doubt}
        if verdict.verdict == "passed":
            changes |= {"verdict": "incomplete", "status": f"{verdict.status}, attested by nobody knows whom"}
    return verdict.model_copy(update=changes)


def _verify_dataset(folder: Path, *, progress: Callable[[int], object] | None) -> Verdict:
    findings = Findings()
    result = verify_dataset(folder, progress=progress)
    for problem in result.problems:
        if isinstance(problem.error, UnsafeError | NewerVersionError):
            raise problem.error
        rule = "LG503" if isinstance(problem.error, VerificationError) else "LG502"
        findings.add(rule, str(problem.error), where=problem.file, severity=problem.severity)
    account = {"kind": "dataset", "metadata_sha256": result.metadata_sha256, "files": result.files}
    return _verdict(findings, checked=["LG502", "LG503"], what="dataset", account=account)


class _OneCheckpoint(RunFiles):
    """A single checkpoint, and the documents of its run where it lies in one."""

    def __init__(self, folder: Path) -> None:
        run_dir = folder.parent.parent
        is_at_home = folder.parent.name == CHECKPOINTS and is_run(run_dir)
        super().__init__(run_dir if is_at_home else folder.parent)
        self.path = f"{CHECKPOINTS}/{folder.name}" if is_at_home else folder.name

    @cached_property
    def checkpoints(self) -> dict[str, CheckpointFolder]:
        """This one alone; empty where its name is no checkpoint's."""
        found = self.checkpoint(self.path)
        return {} if found is None else {self.path: found}


def _verify_checkpoint(folder: Path, *, progress: Callable[[int], object] | None) -> Verdict:
    require_own_folder(folder)
    files = _OneCheckpoint(folder.absolute())
    checkpoint = files.checkpoints.get(files.path)
    if checkpoint is None:
        raise InvalidDocumentError(
            "does not bear a checkpoint's name", path=folder, expected="step-NNNNNNNN-sNN, and no link"
        )
    stream = Stream(files=files, findings=Findings(), has_log=False, progress=progress)
    checkers: list[Checker] = [OptimizerStepChecker(stream), LiveDigestChecker(stream)]
    _check(stream, checkpoint)
    for checker in checkers:
        checker.finish()
    rules = {"LG401", "LG402", "LG403", "LG405", "LG406", "LG407"} | {
        rule for checker in checkers for rule in checker.rules
    }
    account = {"kind": "checkpoint", "manifest_sha256": checkpoint.manifest.sha256}
    return _verdict(stream.findings, checked=sorted(rules), what="checkpoint", account=account)


def _check(stream: Stream, checkpoint: CheckpointFolder) -> None:
    manifest, findings = checkpoint.manifest, stream.findings
    if isinstance(manifest.error, UnsafeError):
        raise manifest.error
    if manifest.document is None:
        findings.add("LG401", f"is not complete: {manifest.error}", where=MANIFEST)
        return
    for name in sorted(manifest.document.files):
        if OS.exists(checkpoint.folder / name):
            require_own_file(checkpoint.folder / name)
    trainer = stream.files.trainer_state(checkpoint)
    note_master_weights(checkpoint, manifest.document, findings, rehash=True)
    for rule, name, problem in checkpoint_problems(
        checkpoint, manifest.document, trainer, rehash=True, progress=stream.progress
    ):
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
        checked=[rule for rule in checked if rule not in findings.not_checked | findings.not_applicable],
        not_checked=dict(sorted(findings.not_checked.items())),
        not_applicable=dict(sorted(findings.not_applicable.items())),
        branch=None,
        spent=None,
        account=dict(account),
        findings=findings.kept,
        finding_counts=findings.counts,
        rule_counts=findings.rule_counts,
    )
