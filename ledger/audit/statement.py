"""What may be attested of a sealed run: the statement that follows from its seal and its final checkpoint.

The statement is a function of the sealed records alone, without a clock: whoever has the run can derive it again and
compare. Its subjects are the files of the final checkpoint, each by its own digest, because an in-toto subject is
matched by digest: whoever has only the weights, under whatever name, can find them in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ledger.audit.files import MAX_MANIFEST_BYTES, RunFiles
from ledger.errors import EvidenceMissingError, VerificationError
from ledger.records.attestation import Resource, ResourceDigest, RunEvidence, Statement, TestedResult
from ledger.records.documents import CheckpointManifest, Seal, Verdict
from ledger.records.layout import MANIFEST, RECIPES, SEAL
from ledger.storage.documents import document_sha256

__all__ = ["FINAL_CHECKPOINT", "final_checkpoint_of", "statement_of"]

FINAL_CHECKPOINT: Final = "final_checkpoint"
"""The key of a verdict's account that names the checkpoint at the target."""


def final_checkpoint_of(verdict: Verdict, *, run_dir: Path) -> str:
    """Return the path, in the run, of the checkpoint that an attestation is about.

    Raises:
        EvidenceMissingError: the run keeps no weights.
    """
    path = verdict.account.get(FINAL_CHECKPOINT)
    if not isinstance(path, str):
        raise EvidenceMissingError(
            "keeps no final checkpoint, and an attestation is about one",
            path=run_dir,
            advice="seal it without --attest",
        )
    return path


def statement_of(run_dir: Path) -> Statement:
    """Return what follows from a run's seal. The final checkpoint's other files are not read.

    Raises:
        EvidenceMissingError: the run is not sealed, or keeps no weights.
        VerificationError: the final checkpoint's manifest is not the sealed one.
        InvalidDocumentError, NewerVersionError, UnsafeError, StorageError: the seal or the manifest cannot be read.
    """
    files = RunFiles(run_dir)
    seal, seal_sha256 = files.seal.document, files.seal.sha256
    if seal is None or seal_sha256 is None:
        if files.seal.error is not None and not files.seal.is_absent:
            raise files.seal.error
        raise EvidenceMissingError(
            "is not sealed",
            path=run_dir,
            expected=f"a run with {SEAL}",
            advice=f"ledger seal {run_dir} --attest",
        )
    checkpoint = final_checkpoint_of(seal.verdict, run_dir=run_dir)
    manifest = _manifest(files, seal, checkpoint)
    return Statement(
        subject=[
            _resource(path, file.sha256)
            for path, file in sorted(seal.files.items())
            if path.startswith(f"{checkpoint}/")
        ],
        predicate=_result(seal, seal_sha256, manifest),
    )


def _manifest(files: RunFiles, seal: Seal, checkpoint: str) -> CheckpointManifest:
    path = f"{checkpoint}/{MANIFEST}"
    loaded = files.load(path, CheckpointManifest, max_bytes=MAX_MANIFEST_BYTES)
    if loaded.document is None:
        raise loaded.error or EvidenceMissingError("is missing", path=files.run_dir / path)
    if path not in seal.files or seal.files[path].sha256 != loaded.sha256:
        raise VerificationError(
            "is not the file that was sealed",
            path=files.run_dir / path,
            advice=f"everything that differs tells: ledger verify {files.run_dir}",
        )
    return loaded.document


def _result(seal: Seal, seal_sha256: str, manifest: CheckpointManifest) -> TestedResult:
    verdict = seal.verdict
    warned = {
        found.rule for found in verdict.findings if found.severity == "warning" or found.waiver is not None
    }
    return TestedResult(
        result="WARNED" if warned else "PASSED",
        configuration=_configuration(manifest),
        passed_tests=[rule for rule in verdict.checked if rule not in warned],
        warned_tests=sorted(warned),
        failed_tests=[],
        evidence=RunEvidence(
            tool_version=verdict.tool_version,
            run_id=seal.run_id,
            sealed=seal.sealed,
            log=seal.log,
            seal_sha256=seal_sha256,
            verdict_sha256=document_sha256(verdict),
            recipe_sha256=manifest.recipe_sha256,
            identity_sha256=manifest.identity_sha256,
            data=manifest.data,
        ),
    )


def _configuration(manifest: CheckpointManifest) -> list[Resource]:
    named = {
        f"{RECIPES}/{manifest.recipe_sha256}.json": manifest.recipe_sha256,
        "recipe identity": manifest.identity_sha256,
        "dataset train": manifest.data.train,
        "dataset validation": manifest.data.validation,
    }
    return [_resource(name, sha256) for name, sha256 in named.items() if sha256 is not None]


def _resource(name: str, sha256: str) -> Resource:
    return Resource(name=name, digest=ResourceDigest(sha256=sha256))
