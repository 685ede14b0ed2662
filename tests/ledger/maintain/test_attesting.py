from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import read_attestation, reconcile, verify, verify_attestation
from ledger.cli import main
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    LedgerError,
    NewerVersionError,
    RefusedError,
    VerificationError,
)
from ledger.maintain import attest_run, seal_run
from ledger.records.attestation import PAYLOAD_TYPE
from ledger.records.documents import Seal
from ledger.records.layout import MANIFEST, SEAL
from ledger.storage.canonical import canonical_json, digest_of, sha256_hex
from ledger.storage.documents import read_document
from ledger.storage.signing import envelope_bytes, read_signer
from tests.ledger.audit.conftest import copy_of, healthy_run

__all__ = ["copy_of", "healthy_run"]

GOLDEN = Path(__file__).parents[2] / "golden" / "attestation"
KEY, PUBLIC = GOLDEN / "key.pem", GOLDEN / "key.pub.pem"
FINAL = "checkpoints/step-00000006-s01"
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def attested(healthy_run, tmp_path_factory) -> Path:
    """A folder with a sealed run and its signed attestation, not to be changed."""
    place = tmp_path_factory.mktemp("attested")
    run = place / "run"
    shutil.copytree(healthy_run("plain"), run)
    seal_run(run, reconcile(run, rehash=True))
    attest_run(run, signer=read_signer(KEY))
    return place


@pytest.fixture
def place(attested: Path, tmp_path: Path) -> Path:
    """A copy of it, to be broken."""
    shutil.copytree(attested, tmp_path / "copy")
    return tmp_path / "copy"


def statement_in(file: Path) -> dict[str, Any]:
    statement: dict[str, Any] = json.loads(base64.b64decode(json.loads(file.read_text())["payload"]))
    return statement


def check(place: Path) -> Any:
    """Verify the attestation of a folder by the right key."""
    file = place / "run.attestation.json"
    return verify_attestation(read_attestation(file, public_key=PUBLIC))


def rewrite(place: Path, change: Change, *, payload_type: str = PAYLOAD_TYPE) -> None:
    """Change what the attestation states, and sign that: what a signer who errs or cheats would make."""
    file = place / "run.attestation.json"
    statement = statement_in(file)
    change(statement)
    file.write_bytes(
        envelope_bytes(canonical_json(statement), payload_type=payload_type, signers=[read_signer(KEY)])
    )


def test_the_statement_names_what_it_rests_on(attested):
    run = attested / "run"
    statement = statement_in(attested / "run.attestation.json")
    seal = read_document(run / SEAL, Seal)
    manifest = json.loads((run / FINAL / MANIFEST).read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]} == {
        f"{FINAL}/{path.name}": sha256_hex(path.read_bytes()) for path in (run / FINAL).iterdir()
    }
    predicate = statement["predicate"]
    assert predicate["result"] == "PASSED"
    assert predicate["passedTests"] == seal.verdict.checked
    assert predicate["warnedTests"] == predicate["failedTests"] == []
    stated = json.loads((run / SEAL).read_text())
    assert predicate["pilotLedger"] == {
        "version": 1,
        "tool_version": seal.verdict.tool_version,
        "run_id": seal.run_id,
        "sealed": seal.sealed,
        "log": stated["log"],
        "seal_sha256": sha256_hex((run / SEAL).read_bytes()),
        "verdict_sha256": digest_of(stated["verdict"]),
        "recipe_sha256": manifest["recipe_sha256"],
        "identity_sha256": manifest["identity_sha256"],
        "data": manifest["data"],
    }
    assert manifest["identity_sha256"] in {item["digest"]["sha256"] for item in predicate["configuration"]}


def test_the_seal_still_holds_and_the_attestation_is_verified_with_the_run(attested):
    run = attested / "run"
    file = attested / "run.attestation.json"
    verdict = verify(run, attestation=read_attestation(file, public_key=PUBLIC))
    assert (verdict.verdict, verdict.findings) == ("passed", [])
    assert "LG705" in verdict.checked
    assert verdict.account["attestation"]["verified_key"] == verdict.account["attestation"]["signed_by"][0]
    assert check(attested).verdict == "passed"


def test_a_published_checkpoint_is_verified_without_its_run(attested, tmp_path):
    folder = tmp_path / Path(FINAL).name
    shutil.copytree(attested / FINAL.replace("checkpoints", "run/checkpoints"), folder)
    attestation = read_attestation(attested / "run.attestation.json", public_key=PUBLIC)
    assert verify(folder, attestation=attestation).verdict == "passed"
    with pytest.raises(VerificationError, match="about another checkpoint"):
        verify(attested / "run" / "checkpoints" / "step-00000003-s01", attestation=attestation)


def test_written_again_it_is_the_same_and_another_is_not_replaced(place):
    before = (place / "run.attestation.json").read_bytes()
    attest_run(place / "run", signer=read_signer(KEY))
    assert (place / "run.attestation.json").read_bytes() == before
    with pytest.raises(RefusedError, match="other content"):
        attest_run(place / "run")


@pytest.mark.parametrize("signed", [True, False], ids=["signed", "unsigned"])
def test_without_a_checked_signature_nobody_knows_who_made_it(place, signed):
    file = place / "run.attestation.json"
    if not signed:
        file.unlink()
        attest_run(place / "run")
        with pytest.raises(VerificationError, match="is not signed"):
            read_attestation(file, public_key=PUBLIC)
    verdict = verify_attestation(read_attestation(file))
    assert verdict.verdict == "incomplete"
    assert ("--public-key" if signed else "not signed") in verdict.not_checked["who attested it"]
    assert verify(place / "run", attestation=read_attestation(file)).verdict == "incomplete"


def test_without_its_run_only_the_signature_is_checked(place, tmp_path):
    file = shutil.move(place / "run.attestation.json", tmp_path / "elsewhere.json")
    verdict = verify_attestation(read_attestation(file, public_key=PUBLIC))
    assert verdict.verdict == "incomplete"
    assert "attested files" in verdict.not_checked


@pytest.mark.parametrize(
    ("name", "problem"),
    [("model.safetensors", "was attested"), ("trainer.json", "was attested"), (MANIFEST, "expected")],
)
def test_a_changed_file_is_not_what_was_attested(name, problem, place):
    with (place / "run" / FINAL / name).open("r+b") as file:
        file.seek(-2, 2)
        file.write(b" ")
    with pytest.raises(LedgerError, match=problem):
        check(place)


def test_a_removed_file_is_missed(place):
    (place / "run" / FINAL / "model.safetensors").unlink()
    with pytest.raises(VerificationError, match=r"model\.safetensors: was attested and is not there"):
        check(place)


def test_an_unsealed_run_and_another_run_are_not_the_attested_one(place, healthy_run):
    (place / "run" / SEAL).unlink()
    with pytest.raises(EvidenceMissingError, match="is not sealed"):
        check(place)
    shutil.rmtree(place / "run")
    shutil.copytree(healthy_run("resumed"), place / "run")
    seal_run(place / "run", reconcile(place / "run", rehash=True))
    with pytest.raises(VerificationError, match=r"is about the run .* is of the run"):
        check(place)


def set_in(*path: str | int, to: Any) -> Change:
    """Return a change of one value."""

    def change(statement: dict[str, Any]) -> None:
        here: Any = statement
        for part in path[:-1]:
            here = here[part]
        here[path[-1]] = to

    return change


OTHER = "f" * 64
EVIDENCE = ("predicate", "pilotLedger")
WRONG = {
    "another seal": (set_in(*EVIDENCE, "seal_sha256", to=OTHER), VerificationError, "rests on another seal"),
    "another verdict": (set_in(*EVIDENCE, "verdict_sha256", to=OTHER), VerificationError, "another verdict"),
    "another head": (set_in(*EVIDENCE, "log", "seq", to=1), VerificationError, "another head"),
    "another recipe": (set_in(*EVIDENCE, "recipe_sha256", to=OTHER), VerificationError, "another recipe"),
    "another identity": (
        set_in(*EVIDENCE, "identity_sha256", to=OTHER),
        VerificationError,
        "recipe identity",
    ),
    "other data": (set_in(*EVIDENCE, "data", "train", to=OTHER), VerificationError, "other datasets"),
    "another result": (set_in("predicate", "result", to="WARNED"), VerificationError, "another result"),
    "more rules": (set_in("predicate", "passedTests", to=["LG999"]), VerificationError, "another result"),
    "no subject": (set_in("subject", to=[]), InvalidDocumentError, "subject"),
    "fewer subjects": (lambda said: said["subject"].pop(), VerificationError, "does not cover"),
    "the same subject twice": (
        lambda said: said["subject"].append(said["subject"][0]),
        InvalidDocumentError,
        "names a file twice",
    ),
    "foreign subject": (
        set_in("subject", 0, "name", to="../x"),
        VerificationError,
        "covers what is no part|does not",
    ),
    "other digest": (set_in("subject", 0, "digest", "sha256", to=OTHER), VerificationError, "another result"),
    "unknown predicate": (
        set_in("predicateType", to="https://slsa.dev/provenance/v1"),
        InvalidDocumentError,
        "of the unknown type 'https://slsa",
    ),
    "newer predicate": (
        set_in("predicateType", to="https://in-toto.io/attestation/test-result/v0.2"),
        NewerVersionError,
        "use a newer ledger",
    ),
    "newer statement": (
        set_in("_type", to="https://in-toto.io/Statement/v2"),
        NewerVersionError,
        "Statement/v2",
    ),
    "unknown statement": (set_in("_type", to="Statement"), InvalidDocumentError, "unknown type"),
    "newer evidence": (set_in(*EVIDENCE, "version", to=2), NewerVersionError, "has version 2"),
    "another program": (set_in(*EVIDENCE, to=None), InvalidDocumentError, "another program"),
    "malformed digest": (
        set_in("subject", 0, "digest", "sha256", to="F" * 64),
        InvalidDocumentError,
        "digest",
    ),
}


@pytest.mark.parametrize(("change", "error", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_is_stated_wrongly_is_refused_although_it_is_signed(change, error, message, place):
    rewrite(place, change)
    with pytest.raises(error, match=message):
        check(place)


def test_unknown_fields_are_ignored_as_the_forms_ask(place):
    def extend(statement: dict[str, Any]) -> None:
        statement["x"] = 1
        statement["predicate"]["url"] = "https://example.com"

    rewrite(place, extend)
    assert check(place).verdict == "passed"


def test_another_payload_type_is_refused(place):
    rewrite(place, lambda _: None, payload_type="application/json")
    with pytest.raises(InvalidDocumentError, match="application/json"):
        check(place)


@pytest.mark.parametrize("payload", [b"[]", b"{", b"\xff", b'{"a":NaN}', b'{"a":1,"a":2}'])
def test_a_payload_that_is_no_statement_is_refused(payload, place):
    data = envelope_bytes(payload, payload_type=PAYLOAD_TYPE, signers=[read_signer(KEY)])
    (place / "run.attestation.json").write_bytes(data)
    with pytest.raises(InvalidDocumentError):
        check(place)


@pytest.mark.slow
def test_the_command_seals_attests_and_verifies(copy_of, capsys, tmp_path):
    run = copy_of("plain")
    key = tmp_path / "key.pem"
    key.write_bytes(KEY.read_bytes())
    key.chmod(0o644)
    assert main(["seal", str(run), "--key", str(key)]) == 2
    assert main(["seal", str(run), "--attest", "--key", str(PUBLIC)]) == 2
    assert not (run / SEAL).exists()
    assert main(["seal", str(run), "--attest", "--key", str(key), "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["attestation"].endswith("plain.attestation.json")
    assert "can be read by others" in captured.err
    file = str(run.with_name("plain.attestation.json"))
    assert main(["verify", str(run), "--public-key", str(PUBLIC)]) == 0
    assert "signed by" in capsys.readouterr().out
    assert main(["verify", file, "--public-key", str(PUBLIC)]) == 0
    assert main(["verify", file]) == 3
    assert main(["verify", str(run), "--attestation", file, "--public-key", str(key)]) == 2
    assert main(["verify", file, "--attestation", file]) == 2
    capsys.readouterr()
    key.chmod(0o600)
    assert main(["seal", str(run), "--attest", "--key", str(key)]) == 0  # again: the same bytes
    assert "can be read" not in capsys.readouterr().err
    assert main(["seal", str(run), "--attest"]) == 1
    assert "the run is sealed, but not attested" in capsys.readouterr().err


def test_a_run_without_weights_is_neither_attested_nor_sealed_for_it(copy_of, capsys):
    run = copy_of("weightless")
    assert main(["seal", str(run), "--attest"]) == 3
    assert "keeps no final checkpoint" in capsys.readouterr().err
    assert not (run / SEAL).exists()
