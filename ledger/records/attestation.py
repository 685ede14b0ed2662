"""What an attestation says: an in-toto Statement with the test-result predicate, and the DSSE envelope around it.

The forms are those of https://in-toto.io/Statement/v1, https://in-toto.io/attestation/test-result/v0.1 and DSSE 1.0.
They ask a reader to ignore fields that it does not know; ours stand in one extension field, `pilotLedger`.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import ConfigDict, Field

from ledger.records.base import Record
from ledger.records.fields import Name, Sha256, Text, Time
from ledger.records.parts import DataIdentities, LogPosition

__all__ = [
    "PAYLOAD_TYPE",
    "PREDICATE_TYPE",
    "STATEMENT_TYPE",
    "Envelope",
    "EnvelopeSignature",
    "Resource",
    "ResourceDigest",
    "RunEvidence",
    "Statement",
    "TestedResult",
]

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


class _Foreign(Record):
    """Base of what others define and may extend: unknown fields are ignored, as they ask."""

    model_config = ConfigDict(extra="ignore")


class ResourceDigest(_Foreign):
    """The digests of a resource; SHA-256 is the one that counts here."""

    sha256: Sha256


class Resource(_Foreign):
    """Something named by its digest."""

    name: Text = Field(description="For a file of the run, its path in the run.")
    digest: ResourceDigest


class RunEvidence(_Foreign):
    """What the attestation rests on: the run, its log's head, its seal and verdict, its recipe and data."""

    version: Literal[1] = 1
    tool_version: Text = Field(description="The ledger that reached the verdict.")
    run_id: Name
    sealed: Time = Field(description="When the run was sealed.")
    log: LogPosition = Field(description="The last line of the log.")
    seal_sha256: Sha256 = Field(description="Digest of seal.json.")
    verdict_sha256: Sha256 = Field(description="Digest of the RFC 8785 form of the verdict in seal.json.")
    recipe_sha256: Sha256 = Field(description="The recipe in force when the checkpoint was taken.")
    identity_sha256: Sha256 = Field(description="Digest of that recipe's identity leaves.")
    data: DataIdentities = Field(description="metadata_sha256 of the datasets it read.")


class TestedResult(_Foreign):
    """The predicate: which rules held."""

    result: Literal["PASSED", "WARNED", "FAILED"]
    configuration: list[Resource] = Field(description="What was tested against: recipe, identity, datasets.")
    passed_tests: list[Text] = Field(alias="passedTests", description="Rules that held.")
    warned_tests: list[Text] = Field(
        alias="warnedTests", description="Rules with a warning or a waived finding."
    )
    failed_tests: list[Text] = Field(alias="failedTests", description="None: only a passed run is sealed.")
    evidence: RunEvidence = Field(alias="pilotLedger", description="Our extension field.")


class Statement(_Foreign):
    """An in-toto Statement over the files of a run's final checkpoint."""

    type: Literal["https://in-toto.io/Statement/v1"] = Field(STATEMENT_TYPE, alias="_type")
    subject: list[Resource] = Field(min_length=1, description="Every file of the final checkpoint.")
    predicate_type: Literal["https://in-toto.io/attestation/test-result/v0.1"] = Field(
        PREDICATE_TYPE, alias="predicateType"
    )
    predicate: TestedResult


class EnvelopeSignature(_Foreign):
    """One signature; `keyid` is a hint that nothing relies on."""

    keyid: Text = ""
    sig: Text = Field(description="Base64 of the signature over the pre-authentication encoding.")


class Envelope(_Foreign):
    """A DSSE envelope; without signatures it says nothing of who wrote it."""

    payload: str = Field(description="Base64 of the bytes that are signed.")
    payload_type: Text = Field(alias="payloadType")
    signatures: list[EnvelopeSignature]
