"""Ed25519 keys in PEM files: the one module that needs `cryptography` (extra `[attest]`); see `signing`."""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from ledger.errors import UsageError
from ledger.storage.filesystem import StrPath

__all__ = ["Ed25519Public", "Ed25519Signer", "load_public_key", "load_signer"]

_PRIVATE: Final = "-----BEGIN PRIVATE KEY-----"
_PUBLIC: Final = "-----BEGIN PUBLIC KEY-----"
_BEGIN: Final = "-----BEGIN "
_MAKE: Final = "make one with: openssl genpkey -algorithm ed25519 -out KEY.pem"
_EXTRACT: Final = "write the public half with: openssl pkey -in KEY.pem -pubout -out KEY.pub.pem"


class Ed25519Public:
    """A key that signatures are checked with."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        form = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.keyid = hashlib.sha256(form).hexdigest()
        """SHA-256 of the key's SubjectPublicKeyInfo in DER, in hexadecimal digits."""

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Tell whether this key's owner signed a message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


class Ed25519Signer:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.keyid = Ed25519Public(key.public_key()).keyid

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of the signature, which are always the same for one key and message."""
        return self._key.sign(message)


def load_signer(pem: bytes, *, path: StrPath) -> Ed25519Signer:
    """Return the private key of a PEM file (PKCS 8, not encrypted).

    Raises:
        UsageError: it is something else.
    """
    text = pem.decode("ascii", "replace")
    if "ENCRYPTED" in text:
        raise UsageError(
            "the private key is encrypted, and no passphrase is asked for here",
            path=path,
            expected="an ed25519 key in PEM (PKCS 8) without a passphrase",
            advice=f"write it out for this use, where nobody else reads: openssl pkey -in {path} -out KEY.pem",
        )
    if _PUBLIC in text:
        raise UsageError("is a public key", path=path, expected="the private key, to sign with")
    if _PRIVATE not in text:
        raise _no_key(path, "private")
    _require_one(text, path=path)
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _no_key(path, "private") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _other_kind(path, key)
    return Ed25519Signer(key)


def load_public_key(pem: bytes, *, path: StrPath) -> Ed25519Public:
    """Return the public key of a PEM file (SubjectPublicKeyInfo).

    Raises:
        UsageError: it is something else.
    """
    text = pem.decode("ascii", "replace")
    if "PRIVATE KEY-----" in text:
        raise UsageError("is a private key", path=path, expected="the public key", advice=_EXTRACT)
    if _PUBLIC not in text:
        raise _no_key(path, "public")
    _require_one(text, path=path)
    try:
        key = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _no_key(path, "public") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _other_kind(path, key)
    return Ed25519Public(key)


def _require_one(text: str, *, path: StrPath) -> None:
    """Insist on one key in a file: of several nobody can tell which one is meant."""
    if text.count(_BEGIN) > 1:
        raise UsageError("holds more than one key or certificate", path=path, expected="one ed25519 key")


def _no_key(path: StrPath, kind: str) -> UsageError:
    form = "PKCS 8" if kind == "private" else "SubjectPublicKeyInfo"
    return UsageError(
        f"holds no {kind} key that can be read",
        path=path,
        expected=f"an ed25519 key in PEM ({form})",
        advice=_MAKE if kind == "private" else _EXTRACT,
    )


def _other_kind(path: StrPath, key: object) -> UsageError:
    kind = type(key).__name__.removeprefix("_").removesuffix("PrivateKey").removesuffix("PublicKey")
    return UsageError(f"is a key of the kind {kind}", path=path, expected="an ed25519 key", advice=_MAKE)
