from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    LedgerError,
    UnsafeError,
    UsageError,
    VerificationError,
)
from ledger.storage.signing import (
    envelope_bytes,
    is_readable_by_others,
    parse_envelope,
    payload_of,
    pre_authentication_encoding,
    read_public_key,
    read_signer,
    require_signature,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "attestation"
TYPE = "application/vnd.in-toto+json"
PATH = "envelope.json"


def pem_of(key, *, passphrase: bytes | None = None) -> bytes:
    encryption = (
        serialization.NoEncryption()
        if passphrase is None
        else serialization.BestAvailableEncryption(passphrase)
    )
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def public_pem_of(key) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


@pytest.fixture
def keys(tmp_path: Path):
    """A private key and its public half, as files."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    (tmp_path / "key.pem").write_bytes(pem_of(key))
    (tmp_path / "key.pub.pem").write_bytes(public_pem_of(key))
    return tmp_path / "key.pem", tmp_path / "key.pub.pem"


def signed(keys, payload: bytes = b"{}", payload_type: str = TYPE):
    return parse_envelope(
        envelope_bytes(payload, payload_type=payload_type, signers=[read_signer(keys[0])]), path=PATH
    )


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (
            "http://example.com/HelloWorld",
            b"hello world",
            b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
        ),
        ("", b"", b"DSSEv1 0  0 "),
        ("ä", b"\x00", b"DSSEv1 2 \xc3\xa4 1 \x00"),
    ],
)
def test_what_is_signed_is_the_encoding_that_dsse_defines(kind, body, expected):
    assert pre_authentication_encoding(kind, body) == expected


def test_a_fixed_key_and_statement_give_fixed_bytes():
    data = envelope_bytes(
        (GOLDEN / "statement.json").read_bytes(), payload_type=TYPE, signers=[read_signer(GOLDEN / "key.pem")]
    )
    assert data == (GOLDEN / "v1.attestation.json").read_bytes()
    require_signature(parse_envelope(data, path=PATH), read_public_key(GOLDEN / "key.pub.pem"), path=PATH)


def test_what_was_signed_is_accepted_in_either_alphabet(keys):
    payload = bytes(range(256))
    envelope = signed(keys, payload)
    sig = envelope.signatures[0].sig
    assert {*"+/"} & {*envelope.payload}
    spelled = str.maketrans("+/", "-_")
    other = parse_envelope(
        json.dumps(
            {
                "payload": envelope.payload.translate(spelled),
                "payloadType": TYPE,
                "signatures": [{"sig": sig.translate(spelled)}],
            }
        ).encode(),
        path=PATH,
    )
    assert payload_of(other, path=PATH) == payload
    require_signature(other, read_public_key(keys[1]), path=PATH)


def test_one_good_signature_among_others_will_do(keys):
    envelope = signed(keys)
    stranger = envelope.signatures[0].model_copy(
        update={"keyid": "", "sig": base64.b64encode(bytes(64)).decode()}
    )
    both = envelope.model_copy(update={"signatures": [stranger, *envelope.signatures]})
    require_signature(both, read_public_key(keys[1]), path=PATH)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"payload": base64.b64encode(b"{ }").decode()}, VerificationError, "was altered"),
        ({"payload_type": "application/json"}, VerificationError, "was altered"),
        ({"signatures": []}, VerificationError, "is not signed"),
        ({"payload": "e30"}, InvalidDocumentError, "`payload`: is not base64"),
        ({"payload": "e 30="}, InvalidDocumentError, "`payload`: is not base64"),
        ({"payload": "ä"}, InvalidDocumentError, "`payload`: is not base64"),
        ({"payload": "e30==="}, InvalidDocumentError, "is not base64"),
        ({"payload": "e31="}, InvalidDocumentError, "something stands behind its end"),
        ({"payload": "e3-/"}, InvalidDocumentError, "two alphabets are mixed"),
    ],
)
def test_what_was_altered_is_refused(keys, change, error, message):
    envelope = signed(keys).model_copy(update=change)
    with pytest.raises(error, match=message):
        require_signature(envelope, read_public_key(keys[1]), path=PATH)


def test_another_key_is_named(keys, tmp_path):
    other = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "other.pem").write_bytes(public_pem_of(other))
    envelope = signed(keys)
    with pytest.raises(
        VerificationError, match=f"is not signed by this key, but by {envelope.signatures[0].keyid}"
    ):
        require_signature(envelope, read_public_key(tmp_path / "other.pem"), path=PATH)


def test_a_key_id_alone_convinces_nobody(keys, tmp_path):
    other = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "other.pem").write_bytes(public_pem_of(other))
    key = read_public_key(tmp_path / "other.pem")
    envelope = signed(keys)
    posing = envelope.model_copy(
        update={"signatures": [envelope.signatures[0].model_copy(update={"keyid": key.keyid})]}
    )
    with pytest.raises(VerificationError, match="was altered"):
        require_signature(posing, key, path=PATH)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "null",
        '{"payload":1,"payloadType":"","signatures":[]}',
        '{"payload":"","signatures":[]}',
        "x",
        "",
    ],
)
def test_what_is_no_envelope_is_refused(text):
    with pytest.raises(InvalidDocumentError):
        parse_envelope(text.encode(), path=PATH)


def refused_private_keys() -> Iterator[tuple[str, bytes, str]]:
    ed = ed25519.Ed25519PrivateKey.generate()
    openssh = serialization.PrivateFormat.OpenSSH
    yield "encrypted", pem_of(ed, passphrase=b"secret"), "is encrypted"
    yield "a public key", public_pem_of(ed), "is a public key"
    yield "elliptic curve", pem_of(ec.generate_private_key(ec.SECP256R1())), "of the kind E"
    yield "rsa", pem_of(rsa.generate_private_key(65537, 2048)), "of the kind RSA"
    yield (
        "openssh",
        ed.private_bytes(serialization.Encoding.PEM, openssh, serialization.NoEncryption()),
        "holds no private key",
    )
    yield "cut off", pem_of(ed)[:60], "holds no private key"
    yield "empty", b"", "holds no private key"
    yield "bytes", bytes(range(256)), "holds no private key"


@pytest.mark.parametrize(
    ("pem", "message"), [pytest.param(*rest, id=name) for name, *rest in refused_private_keys()]
)
def test_other_private_keys_are_refused(pem, message, tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(pem)
    with pytest.raises(UsageError, match=message):
        read_signer(path)


def test_other_public_keys_are_refused(keys, tmp_path):
    path = tmp_path / "other.pem"
    for pem, message in (
        (keys[0].read_bytes(), "is a private key"),
        (public_pem_of(ec.generate_private_key(ec.SECP256R1())), "of the kind E"),
        (b"ssh-ed25519 AAAA", "holds no public key"),
        (public_pem_of(ed25519.Ed25519PrivateKey.generate()).replace(b"MC", b"M"), "holds no public key"),
    ):
        path.write_bytes(pem)
        with pytest.raises(UsageError, match=message):
            read_public_key(path)


def test_a_key_that_is_not_there_is_said_so(tmp_path):
    for read in (read_signer, read_public_key):
        with pytest.raises(EvidenceMissingError):
            read(tmp_path / "none.pem")
        with pytest.raises(LedgerError):
            read(tmp_path)


def test_a_key_may_be_a_link_and_others_may_not_read_it(keys, tmp_path):
    (tmp_path / "link.pem").symlink_to(keys[0])
    assert read_signer(tmp_path / "link.pem").keyid == read_public_key(keys[1]).keyid
    for mode, is_open in ((0o600, False), (0o640, True), (0o604, True)):
        keys[0].chmod(mode)
        assert is_readable_by_others(tmp_path / "link.pem") is is_open


def test_without_the_extra_its_name_is_said(keys, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    monkeypatch.delitem(sys.modules, "ledger.storage.ed25519", raising=False)
    with pytest.raises(UsageError, match=r"pip install 'pilot-ledger\[attest\]'"):
        read_signer(keys[0])


@pytest.mark.slow
def test_nothing_loads_the_extra_that_needs_no_key():
    code = "import sys, ledger.audit, ledger.cli.seal, ledger.cli.verify; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_file_that_holds_more_than_one_key_or_no_key_is_a_wrong_argument(keys, tmp_path):
    (tmp_path / "two.pem").write_bytes(keys[0].read_bytes() * 2)
    (tmp_path / "two.pub.pem").write_bytes(keys[1].read_bytes() * 2)
    (tmp_path / "huge.pem").write_bytes(b"-" * 70_000)
    (tmp_path / "circle.pem").symlink_to(tmp_path / "circle.pem")
    for name, problem in {
        "two.pem": "more than one key",
        "two.pub.pem": "more than one key",
        "huge.pem": "70,000 bytes",
    }.items():
        read = read_public_key if name == "two.pub.pem" else read_signer
        with pytest.raises(UsageError, match=problem):
            read(tmp_path / name)
    with pytest.raises(UnsafeError):
        read_signer(tmp_path / "circle.pem")


def test_an_empty_file_is_no_attestation():
    with pytest.raises(InvalidDocumentError, match="is no attestation: the file is empty"):
        parse_envelope(b"", path=PATH)
