from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    LedgerError,
    NewerVersionError,
    RefusedError,
    UnsafeError,
    VerificationError,
)
from ledger.records.documents import CheckpointFile, CheckpointManifest, Evaluation
from ledger.records.parts import ZERO, DataIdentities, LogPosition, Position
from ledger.storage.documents import (
    document_bytes,
    document_sha256,
    load_document,
    parse_document,
    read_document,
    write_document,
)
from tests.ledger.storage.building import DIGEST, NO_STATE

EVALUATION = Evaluation(
    run_id="run-1",
    manifest_sha256=DIGEST,
    state=NO_STATE,
    step=3,
    split="validation",
    data_sha256=DIGEST,
    loss=1.0,
    tokens=8,
    batches=1,
    complete=True,
    metrics={"perplexity": 1e20, "worst": "Infinity"},
    environment_sha256=DIGEST,
)


def changed(**changes: Any) -> bytes:
    return json.dumps(json.loads(document_bytes(EVALUATION)) | changes).encode()


def without(key: str) -> bytes:
    value = json.loads(document_bytes(EVALUATION))
    del value[key]
    return json.dumps(value).encode()


def test_a_document_is_read_as_it_was_written(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    sha256 = write_document(path, EVALUATION, replace=False)
    assert read_document(path, Evaluation, sha256=sha256) == EVALUATION
    assert sha256 == document_sha256(EVALUATION) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert load_document(path, Evaluation).sha256 == sha256


def manifest(**changes: Any) -> CheckpointManifest:
    fields: dict[str, Any] = {
        "run_id": "run-1",
        "session": 1,
        "kind": "final",
        "counters": ZERO,
        "cursor": {"train": Position(0, 4)},
        "data_chain": DIGEST,
        "state": NO_STATE,
        "recipe_sha256": DIGEST,
        "identity_sha256": DIGEST,
        "data": DataIdentities(DIGEST, None),
        "log": LogPosition(1, DIGEST),
        "files": {},
    }
    return CheckpointManifest(**(fields | changes))


def test_shared_parts_are_written_and_read(tmp_path: Path):
    write_document(tmp_path / "manifest.json", manifest(), replace=True)
    assert read_document(tmp_path / "manifest.json", CheckpointManifest) == manifest()


REFUSED: dict[str, tuple[bytes, type[LedgerError], str]] = {
    "an array": (b"[]", InvalidDocumentError, "the document is an array"),
    "no schema": (without("schema"), InvalidDocumentError, "names no `schema`"),
    "another schema": (
        changed(schema="ledger.run"),
        InvalidDocumentError,
        "'ledger.run'; expected ledger.evaluation",
    ),
    "J34 true for a count": (changed(tokens=True), InvalidDocumentError, "`tokens`"),
    "J36 text for a count": (changed(tokens="12"), InvalidDocumentError, "but it is '12'"),
    "a float for a count": (changed(tokens=1.5), InvalidDocumentError, "`tokens`"),
    "a float beyond the range for a count": (changed(tokens=1e20), InvalidDocumentError, "`tokens`"),
    "J37 null": (changed(tokens=None), InvalidDocumentError, "but it is null"),
    "J37 absent": (without("tokens"), InvalidDocumentError, "`tokens`: the key is missing"),
    "J38 unknown key": (changed(tokenz=1), InvalidDocumentError, "`tokenz`: the key is unknown"),
    "J38 nearest key": (changed(tokenz=1), InvalidDocumentError, "did you mean `tokens`?"),
    "the model's name for a key": (changed(schema_name="ledger.evaluation"), InvalidDocumentError, "unknown"),
    "J41 version absent": (without("version"), InvalidDocumentError, "`version` is absent"),
    "J41 version as text": (changed(version="1"), InvalidDocumentError, "`version` is '1'"),
    "J41 version 0": (changed(version=0), InvalidDocumentError, "`version` is 0"),
    "J41 version 1.5": (changed(version=1.5), InvalidDocumentError, "`version` is 1.5"),
    "J41 version true": (changed(version=True), InvalidDocumentError, "`version` is true"),
    "J41 newer version": (
        changed(version=99, more=1),
        NewerVersionError,
        "version 99; the newest known here is 1",
    ),
    "J48 digest in upper case": (changed(data_sha256=DIGEST.upper()), InvalidDocumentError, "`data_sha256`"),
    "J48 63 digits": (changed(data_sha256=DIGEST[1:]), InvalidDocumentError, "`data_sha256`"),
    "J48 65 digits": (changed(data_sha256=DIGEST + "a"), InvalidDocumentError, "`data_sha256`"),
    "J48 no digits": (changed(data_sha256="x" * 64), InvalidDocumentError, "`data_sha256`"),
    "J48 another algorithm": (changed(data_sha256="md5:" + "a" * 32), InvalidDocumentError, "`data_sha256`"),
    "J48 a newline behind": (changed(data_sha256=DIGEST + "\n"), InvalidDocumentError, "`data_sha256`"),
    "a text for a measurement": (
        changed(loss="abc"),
        InvalidDocumentError,
        "`loss`: Input should be a valid number",
    ),
    "a text for one of many": (changed(metrics={"a": 1, "b": "c"}), InvalidDocumentError, "`metrics.b`: "),
    "J40 wrong case": (changed(loss="nan"), InvalidDocumentError, "`loss`"),
    "a part's unknown key": (changed(state={"modle": None}), InvalidDocumentError, "`state`"),
    "two faults": (changed(tokens="12", batches="1"), InvalidDocumentError, "(and 1 more)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_the_schema_does_not_say(name: str):
    data, error, fragment = REFUSED[name]
    with pytest.raises(error) as caught:
        parse_document(data, Evaluation, path=Path("evaluation.json"))
    assert str(caught.value).startswith("evaluation.json: ")
    assert fragment in str(caught.value)


def test_a_nested_unknown_key_names_the_nearest_of_its_place():
    value = json.loads(
        document_bytes(manifest(files={"model": CheckpointFile(bytes=1, sha256=DIGEST, tensors=None)}))
    )
    value["files"]["model"]["byts"] = 1
    with pytest.raises(InvalidDocumentError) as caught:
        parse_document(json.dumps(value).encode(), CheckpointManifest)
    assert "`files.model.byts`: the key is unknown" in str(caught.value)
    assert "did you mean `bytes`?" in str(caught.value)


def test_the_old_content_is_not_replaced_unless_asked(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    write_document(path, EVALUATION, replace=False)
    write_document(path, EVALUATION, replace=False)
    other = EVALUATION.model_copy(update={"step": 4})
    with pytest.raises(RefusedError, match="exists already with other content"):
        write_document(path, other, replace=False)
    assert read_document(path, Evaluation) == EVALUATION
    write_document(path, other, replace=True)
    assert read_document(path, Evaluation) == other


def test_a_flipped_byte_is_found_by_the_recorded_digest(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    sha256 = write_document(path, EVALUATION, replace=False)
    path.write_bytes(path.read_bytes().replace(b'"step":3', b'"step":2'))
    assert read_document(path, Evaluation).step == 2
    with pytest.raises(VerificationError, match=sha256):
        read_document(path, Evaluation, sha256=sha256)


def test_a_non_finite_number_is_not_written(tmp_path: Path):
    bad = EVALUATION.model_copy(update={"metrics": {"perplexity": float("nan")}})
    with pytest.raises(InvalidDocumentError, match="cannot be written as JSON"):
        write_document(tmp_path / "evaluation.json", bad, replace=True)
    assert list(tmp_path.iterdir()) == []


def test_an_absent_document_is_missing_evidence(tmp_path: Path):
    with pytest.raises(EvidenceMissingError, match="there is no such file"):
        read_document(tmp_path / "evaluation.json", Evaluation)


@pytest.mark.parametrize(
    "metrics", [{"é": 1.0}, {"": 1.0}, {"x" * 2000: 1.0}, {"a\0": 1.0}], ids=["é", "empty", "long", "NUL"]
)
def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, metrics: dict[str, float]):
    bad = EVALUATION.model_copy(update={"metrics": metrics})
    with pytest.raises(InvalidDocumentError, match="is not allowed"):
        write_document(tmp_path / "evaluation.json", bad, replace=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "dangling link"])
def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path, kind: str):
    path = tmp_path / "evaluation.json"
    write_document(tmp_path / "real.json", EVALUATION, replace=False)
    match kind:
        case "link":
            path.symlink_to("real.json")
        case "dangling link":
            path.symlink_to("nowhere.json")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
    with pytest.raises(UnsafeError, match="expected a regular file"):
        read_document(path, Evaluation)


def test_a_device_is_refused():
    with pytest.raises(UnsafeError, match="a device stands here"):
        read_document("/dev/zero", Evaluation)


def test_a_document_beyond_the_bound_is_not_read(tmp_path: Path):
    path = tmp_path / "evaluation.json"
    with path.open("wb") as file:
        file.truncate((8 << 20) + 1)
    with pytest.raises(InvalidDocumentError, match="at most 8,388,608 bytes"):
        read_document(path, Evaluation)
