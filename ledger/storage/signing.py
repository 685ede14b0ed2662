"""Signed envelopes as DSSE 1.0 defines them, and the keys to sign and check them with.

A signature covers the payload and what the payload is said to be, never a re-serialisation of either.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import stat
from types import ModuleType
from typing import Final, Protocol

from ledger.errors import InvalidDocumentError, UsageError, VerificationError
from ledger.records.attestation import Envelope, EnvelopeSignature
from ledger.storage.canonical import canonical_json
from ledger.storage.documents import validate_model
from ledger.storage.files import read_regular_file, real_path
from ledger.storage.filesystem import OS, FileSystem, StrPath
from ledger.storage.strict_json import MAX_DOCUMENT_BYTES, parse_json

__all__ = [
    "PublicKey",
    "Signer",
    "envelope_bytes",
    "is_readable_by_others",
    "parse_envelope",
    "payload_of",
    "pre_authentication_encoding",
    "read_public_key",
    "read_signer",
    "require_signature",
]

_MAX_KEY_BYTES: Final = 1 << 16
_URL_SAFE: Final = str.maketrans("-_", "+/")


class Signer(Protocol):
    """A private key."""

    keyid: str

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        ...


class PublicKey(Protocol):
    """A key that signatures are checked with."""

    keyid: str

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Tell whether this key's owner signed a message."""
        ...


def read_signer(path: StrPath, *, fs: FileSystem = OS) -> Signer:
    """Read a private ed25519 key from a PEM file (PKCS 8, not encrypted); links are followed.

    Raises:
        UsageError: it is no such key, or the extra that knows keys is not installed.
        EvidenceMissingError, UnsafeError, StorageError: as `read_regular_file`.
    """
    found: Signer = _library().load_signer(_read_key(path, fs=fs), path=path)
    return found


def read_public_key(path: StrPath, *, fs: FileSystem = OS) -> PublicKey:
    """Read a public ed25519 key from a PEM file; links are followed. Errors as `read_signer`."""
    found: PublicKey = _library().load_public_key(_read_key(path, fs=fs), path=path)
    return found


def is_readable_by_others(path: StrPath, *, fs: FileSystem = OS) -> bool:
    """Tell whether others than its owner may read a file, links followed."""
    return bool(fs.stat(real_path(path)).st_mode & (stat.S_IRGRP | stat.S_IROTH))


def pre_authentication_encoding(payload_type: str, payload: bytes) -> bytes:
    """Return what is signed: DSSE's PAE(type, body)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def envelope_bytes(payload: bytes, *, payload_type: str, signers: list[Signer]) -> bytes:
    """Return the stored form of an envelope: RFC 8785 and a newline."""
    message = pre_authentication_encoding(payload_type, payload)
    envelope = Envelope(
        payload=base64.b64encode(payload).decode(),
        payload_type=payload_type,
        signatures=[
            EnvelopeSignature(keyid=signer.keyid, sig=base64.b64encode(signer.sign(message)).decode())
            for signer in signers
        ],
    )
    data = canonical_json(envelope.model_dump(by_alias=True))
    parse_json(data, max_bytes=MAX_DOCUMENT_BYTES)  # what is written can be read
    return data + b"\n"


def parse_envelope(data: bytes, *, path: StrPath) -> Envelope:
    """Return an envelope; nothing in it is believed yet.

    Raises:
        InvalidDocumentError: it is none.
    """
    try:
        value = parse_json(data, path=path)
    except InvalidDocumentError as error:
        place = "" if error.place is None else f"{error.place}: "
        raise _no_envelope(path, problem=f"{place}{error.problem}") from error
    if not isinstance(value, dict) or "payload" not in value:
        raise _no_envelope(path, problem="it has no payload")
    return validate_model(value, Envelope, path=path, what="a DSSE envelope")


def _no_envelope(path: StrPath, *, problem: str) -> InvalidDocumentError:
    return InvalidDocumentError(
        f"is no attestation: {problem}",
        path=path,
        expected="a DSSE envelope, a JSON object with payload, payloadType and signatures",
        advice="to verify a run, a dataset or a checkpoint, name its folder",
    )


def payload_of(envelope: Envelope, *, path: StrPath) -> bytes:
    """Return the bytes that an envelope holds.

    Raises:
        InvalidDocumentError: they are not in base64.
    """
    return _decoded(envelope.payload, path=path, place="`payload`")


def require_signature(envelope: Envelope, key: PublicKey, *, path: StrPath) -> None:
    """Insist that the owner of a key signed an envelope. The key ids in it only word the refusal.

    Raises:
        InvalidDocumentError: a signature is not in base64.
        VerificationError: there is none, one of another key, or one of other bytes than these.
    """
    if not envelope.signatures:
        raise VerificationError(
            "is not signed: anyone could have written it",
            path=path,
            expected=f"a signature of the key {key.keyid}",
        )
    message = pre_authentication_encoding(envelope.payload_type, payload_of(envelope, path=path))
    for number, signature in enumerate(envelope.signatures):
        found = _decoded(signature.sig, path=path, place=f"`signatures.{number}.sig`")
        if key.verifies(found, message):
            return
    named = [signature.keyid for signature in envelope.signatures]
    if key.keyid in named:
        raise VerificationError(
            "its signature by this key does not fit: the payload, its type or the signature was altered",
            path=path,
            expected=f"what the owner of the key {key.keyid} signed",
            advice="get the attestation again from whoever made it",
        )
    raise VerificationError(
        f"is not signed by this key, but by {', '.join(name or 'a key without an id' for name in named[:3])}",
        path=path,
        expected=f"a signature of the key {key.keyid}",
        advice="check that this is the right public key",
    )


def _decoded(text: str, *, path: StrPath, place: str) -> bytes:
    """Decode base64 of one of the two alphabets, in the one form that it has; nothing else may stand between."""
    is_url_safe = not _URL_SAFE.keys().isdisjoint(map(ord, text))
    plain = text.translate(_URL_SAFE) if is_url_safe else text
    try:
        found = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _no_base64(str(error), path=path, place=place) from error
    if is_url_safe and ("+" in text or "/" in text):
        raise _no_base64("two alphabets are mixed", path=path, place=place)
    if base64.b64encode(found).decode() != plain:
        raise _no_base64("something stands behind its end", path=path, place=place)
    return found


def _no_base64(problem: str, *, path: StrPath, place: str) -> InvalidDocumentError:
    return InvalidDocumentError(
        f"is not base64: {problem}", path=path, place=place, expected="base64, padded"
    )


def _read_key(path: StrPath, *, fs: FileSystem) -> bytes:
    try:
        return read_regular_file(real_path(path), max_bytes=_MAX_KEY_BYTES, fs=fs)
    except InvalidDocumentError as error:
        raise UsageError(error.problem, path=path, expected="a file with an ed25519 key in PEM") from error


def _library() -> ModuleType:
    """Load the one module that needs the extra."""
    try:
        return importlib.import_module("ledger.storage.ed25519")
    except ModuleNotFoundError as error:
        raise UsageError(
            "signatures need the package cryptography, which is not installed",
            advice="pip install 'pilot-ledger[attest]'",
        ) from error
