"""Checking an attestation: its envelope and signature, what it states, and whether that is what lies on disk.

In that order, as DSSE asks: nothing of the payload is believed, or even parsed, before its signature.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ledger.audit.files import MAX_MANIFEST_BYTES, inside
from ledger.audit.statement import statement_of
from ledger.errors import EvidenceMissingError, InvalidDocumentError, NewerVersionError, VerificationError
from ledger.records.attestation import PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE, Statement
from ledger.records.documents import CheckpointManifest
from ledger.records.fields import Json
from ledger.records.layout import MANIFEST
from ledger.storage.digests import hash_file
from ledger.storage.documents import load_document, validate_model
from ledger.storage.files import read_regular_file
from ledger.storage.filesystem import OS
from ledger.storage.signing import parse_envelope, payload_of, read_public_key, require_signature
from ledger.storage.strict_json import MAX_DOCUMENT_BYTES, parse_json

__all__ = ["SUFFIX", "Attestation", "attestation_path", "attested_folder", "compare", "read_attestation"]

SUFFIX: Final = ".attestation.json"
"""The ending of the file beside a run, behind the run's name."""

_EVIDENCE: Final = {
    "seal_sha256": "another seal",
    "verdict_sha256": "another verdict",
    "log": "another head of the log",
    "recipe_sha256": "another recipe",
    "identity_sha256": "another recipe identity",
    "data": "other datasets",
    "sealed": "another time of sealing",
    "tool_version": "another version of the ledger",
}
"""What is wrong when a part of the evidence differs."""


@dataclass(frozen=True, kw_only=True)
class Attestation:
    """An attestation that was read; its payload's form is right."""

    path: Path
    statement: Statement
    signed_by: tuple[str, ...]
    """The key ids that its signatures carry; hints, nothing more."""
    verified_key: str | None
    """The key whose signature was checked and holds; None where no key was given."""

    @property
    def doubt(self) -> str | None:
        """Why it cannot be told who made it; None where a signature was checked."""
        if self.verified_key is not None:
            return None
        if not self.signed_by:
            return "it is not signed: anyone could have written it"
        return "its signature was not checked; use --public-key FILE"

    def account(self) -> dict[str, Json]:
        """Return what a verdict says of it."""
        evidence = self.statement.predicate.evidence
        return {
            "run_id": evidence.run_id,
            "result": self.statement.predicate.result,
            "sealed": evidence.sealed,
            "signed_by": [*self.signed_by],
            "verified_key": self.verified_key,
            "subjects": [subject.name for subject in self.statement.subject],
        }


def attestation_path(run_dir: str | os.PathLike[str]) -> Path:
    """Return where the attestation of a run lies: beside the folder itself, links followed."""
    folder = Path(run_dir).resolve()
    return folder.with_name(folder.name + SUFFIX)


def attested_folder(path: str | os.PathLike[str]) -> Path | None:
    """Return where the run of an attestation would lie: beside it; None where the name does not tell."""
    file = Path(path)
    return file.with_name(file.name.removesuffix(SUFFIX)) if len(file.name) > len(SUFFIX) else None


def read_attestation(
    path: str | os.PathLike[str], *, public_key: str | os.PathLike[str] | None = None
) -> Attestation:
    """Read an attestation and check its signature, if a key to check it with is given.

    Raises:
        UsageError: the key is no public ed25519 key, or the extra that knows keys is not installed.
        VerificationError: it is not signed by that key, or was altered since.
        InvalidDocumentError: it is no envelope, or holds no statement that is known here.
        NewerVersionError: a newer version of the ledger, or of the statement's form, made it.
        EvidenceMissingError, UnsafeError, StorageError: it cannot be read.
    """
    key = None if public_key is None else read_public_key(public_key)
    file = Path(path)
    envelope = parse_envelope(read_regular_file(file, max_bytes=MAX_DOCUMENT_BYTES), path=file)
    if key is not None:
        require_signature(envelope, key, path=file)
    if envelope.payload_type != PAYLOAD_TYPE:
        raise InvalidDocumentError(
            f"its payload is said to be {ascii(envelope.payload_type)[:80]}", path=file, expected=PAYLOAD_TYPE
        )
    return Attestation(
        path=file,
        statement=_parse_statement(payload_of(envelope, path=file), path=file),
        signed_by=tuple(signature.keyid or "?" for signature in envelope.signatures),
        verified_key=None if key is None else key.keyid,
    )


def compare(
    attestation: Attestation, folder: Path, *, progress: Callable[[int], object] | None = None
) -> None:
    """Insist that an attestation is about a run, or about a checkpoint that lies alone, and that its bytes are there.

    Raises:
        VerificationError: it is about another run, seal, verdict, recipe, dataset or checkpoint, or a file differs or
            is gone.
        EvidenceMissingError: the run is not sealed.
        InvalidDocumentError, NewerVersionError, UnsafeError, StorageError: something cannot be read.
    """
    is_alone = OS.exists(folder / MANIFEST)
    if is_alone:
        _compare_checkpoint(attestation, folder)
    else:
        _compare_run(attestation, folder)
    for subject in attestation.statement.subject:
        name = PurePosixPath(subject.name).name if is_alone else subject.name
        path = inside(folder, name)
        if path is None:
            raise _refusal(attestation, f"names a file outside the run: {ascii(subject.name)[:80]}")
        _require_file(path, subject.digest.sha256, progress=progress)


def _require_file(path: Path, sha256: str, *, progress: Callable[[int], object] | None) -> None:
    try:
        found = hash_file(path, progress=progress).sha256
    except EvidenceMissingError as error:
        raise VerificationError("was attested and is not there", path=path) from error
    if found != sha256:
        raise VerificationError(
            "is not the file that was attested",
            path=path,
            expected=f"SHA-256 {sha256}",
            advice="it was changed since, or is of another checkpoint",
        )


def _compare_run(attestation: Attestation, run_dir: Path) -> None:
    """Derive the statement again from what was sealed, and compare the parts."""
    own, found = statement_of(run_dir), attestation.statement
    _require_run(attestation, own.predicate.evidence.run_id, run_dir)
    for name, problem in _EVIDENCE.items():
        if getattr(own.predicate.evidence, name) != getattr(found.predicate.evidence, name):
            raise _refusal(attestation, f"rests on {problem} than {run_dir} holds", place=f"`{name}`")
    attested, sealed = _digests(found), _digests(own)
    for path in sorted(sealed.keys() ^ attested.keys()):
        how = "does not cover" if path in sealed else "covers what is no part of the final checkpoint:"
        raise _refusal(attestation, f"{how} {ascii(path)[1:-1]}")
    if (own.predicate, sealed) != (found.predicate, attested):
        raise _refusal(attestation, f"states another result than the verdict that {run_dir} was sealed with")


def _compare_checkpoint(attestation: Attestation, folder: Path) -> None:
    manifest = load_document(folder / MANIFEST, CheckpointManifest, max_bytes=MAX_MANIFEST_BYTES)
    _require_run(attestation, manifest.document.run_id, folder)
    names = {PurePosixPath(name).name: digest for name, digest in _digests(attestation.statement).items()}
    if names.get(MANIFEST) != manifest.sha256:
        raise _refusal(attestation, f"is about another checkpoint than {folder}")
    for name in sorted({*manifest.document.files, MANIFEST} - names.keys()):
        raise _refusal(attestation, f"does not cover {ascii(name)[1:-1]}")


def _require_run(attestation: Attestation, run_id: str, folder: Path) -> None:
    attested = attestation.statement.predicate.evidence.run_id
    if attested != run_id:
        raise _refusal(attestation, f"is about the run {attested}; {folder} is of the run {run_id}")


def _digests(statement: Statement) -> Mapping[str, str]:
    return {subject.name: subject.digest.sha256 for subject in statement.subject}


def _parse_statement(payload: bytes, *, path: Path) -> Statement:
    value = parse_json(payload, path=path, max_bytes=MAX_DOCUMENT_BYTES)
    if not isinstance(value, dict):
        raise InvalidDocumentError("its payload is no in-toto statement", path=path, expected="a JSON object")
    _require_type(value.get("_type"), STATEMENT_TYPE, path=path, place="`_type`")
    _require_type(value.get("predicateType"), PREDICATE_TYPE, path=path, place="`predicateType`")
    _require_known_version(value, path=path)
    statement = validate_model(
        value, Statement, path=path, what="a statement that `ledger seal --attest` makes"
    )
    if len(_digests(statement)) < len(statement.subject):
        raise InvalidDocumentError(
            "names a file twice", path=path, place="`subject`", expected="each file once"
        )
    return statement


def _require_type(found: object, known: str, *, path: Path, place: str) -> None:
    """Tell a newer version of a type from another type."""
    if found == known:
        return
    shown = ascii(found)[:120]
    family, _, _ = known.rpartition("/v")
    if isinstance(found, str) and found.startswith(f"{family}/v"):
        raise NewerVersionError(
            f"is of the version {shown}", path=path, place=place, expected=known, advice="use a newer ledger"
        )
    raise InvalidDocumentError(f"is of the unknown type {shown}", path=path, place=place, expected=known)


def _require_known_version(value: dict[str, Any], *, path: Path) -> None:
    predicate = value.get("predicate")
    evidence = predicate.get("pilotLedger") if isinstance(predicate, dict) else None
    if not isinstance(evidence, dict):
        raise InvalidDocumentError(
            "was made by another program than the ledger",
            path=path,
            place="`predicate.pilotLedger`",
            expected="the run, seal and verdict that it rests on",
        )
    version = evidence.get("version")
    if type(version) is int and version > 1:
        raise NewerVersionError(
            f"has version {version}; the newest known here is 1",
            path=path,
            place="`predicate.pilotLedger`",
            advice="use a ledger of at least the version that made it",
        )


def _refusal(attestation: Attestation, problem: str, *, place: str | None = None) -> VerificationError:
    return VerificationError(
        problem, path=attestation.path, place=place, advice="this attestation says nothing of these files"
    )
