"""The hub: a revision becomes a commit before anything is read, the cache works without a network, errors are clear."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.config import HubTokenizer
from data_prep.hub import fetch, pin
from data_prep.pipeline import prepare
from data_prep.sources.hub import HubDataset
from data_prep.tokenizer import train_byte_level_bpe
from ledger.errors import ConfigError, EvidenceMissingError, InvalidDocumentError, VerificationError
from tests.data_prep.corpus import EOS, configure, overrides, texts
from tests.data_prep.hub_server import COMMIT, LATER, serve

NOWHERE = "http://127.0.0.1:9"
ROOT = Path(__file__).parents[2]

LINES = [json.dumps({"id": f"doc-{n}", "text": text}) for n, text in enumerate(texts(60))]
FILES = {
    "data/a.jsonl": ("\n".join(LINES[:30]) + "\n").encode(),
    "data/b.jsonl": ("\n".join(LINES[30:]) + "\n").encode(),
    "large/a.jsonl": ("\n".join(LINES[:30]) + "\n").encode(),
    "large/b[1].jsonl": ("\n".join(LINES[30:]) + "\n").encode(),
    "README.md": b"about",
    "tokenizer.json": train_byte_level_bpe(texts(30), vocabulary=300, eos_token=EOS),
}


@pytest.fixture(scope="module")
def hub():
    with serve(FILES) as server:
        yield server


@pytest.fixture
def online(hub, tmp_path, monkeypatch):
    """Let the library talk to the loopback hub, with a cache of its own."""
    point(monkeypatch, hub.url, tmp_path / "cache")
    hub.requests.clear()
    return hub


def point(monkeypatch, url: str, cache: Path) -> None:
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)


def unplug(monkeypatch, cache: Path) -> None:
    point(monkeypatch, NOWHERE, cache)
    monkeypatch.setattr(importlib.import_module("huggingface_hub.constants"), "HF_HUB_OFFLINE", True)


def source(**changes) -> HubDataset:
    settings = {"revision": "main", "patterns": ["data/*.jsonl"], "column": "text", "id_column": None}
    return HubDataset("me/texts", **(settings | changes))


def test_the_revision_becomes_a_commit_before_anything_is_read(online):
    found = source()
    identity = found.identify()
    assert (identity.id, identity.requested_revision, identity.resolved_revision) == (
        "me/texts",
        "main",
        COMMIT,
    )
    assert [file.name for file in identity.files] == ["data/a.jsonl", "data/b.jsonl"]
    assert [document.text for document in found.documents()] == texts(60)
    first_file = next(n for n, request in enumerate(online.requests) if "/resolve/" in request)
    assert any("/revision/main" in request for request in online.requests[:first_file])
    assert all(f"/resolve/{COMMIT}/" in request for request in online.requests if "/resolve/" in request)
    assert not any("README" in request for request in online.requests if "/resolve/" in request)


def test_a_branch_that_moves_meanwhile_changes_nothing(online, monkeypatch):
    repository = pin("dataset", "me/texts", revision="main")
    monkeypatch.setattr(online, "main", LATER)
    files = fetch(repository, patterns=["data/*"])
    assert [COMMIT in str(path) for _, path in files] == [True, True]
    assert not any(LATER in request for request in online.requests)


def test_the_cache_works_without_a_network(online, tmp_path, monkeypatch):
    assert online.url
    before = source().identify()
    unplug(monkeypatch, tmp_path / "cache")
    again = source()
    assert again.identify() == before
    assert [document.text for document in again.documents()] == texts(60)
    pinned = source(revision=COMMIT).identify()
    assert (pinned.resolved_revision, pinned.files) == (COMMIT, before.files)


def test_a_cache_that_holds_only_part_of_it_is_not_taken_for_the_whole(online, tmp_path, monkeypatch):
    assert online.url
    source(patterns=["data/a.jsonl"]).identify()
    unplug(monkeypatch, tmp_path / "cache")
    assert source(patterns=["data/a.jsonl"]).identify().files
    with pytest.raises(EvidenceMissingError, match=r"me/texts.*\(completely\) in the cache"):
        source().identify()


def fetched(hub) -> set[str]:
    return {request.rpartition("/")[2] for request in hub.requests if "/resolve/" in request}


def test_a_large_file_is_fetched_when_it_is_its_turn(online):
    found = source(patterns=["large/*"])
    before = found.identify()
    assert [file.name for file in before.files] == ["large/a.jsonl", "large/b[1].jsonl"]
    assert fetched(online) == set()
    documents = found.documents()
    assert [next(documents).text for _ in range(30)] == texts(60)[:30]
    assert fetched(online) == {"a.jsonl"}
    assert [document.text for document in documents] == texts(60)[30:]
    assert fetched(online) == {"a.jsonl", "b[1].jsonl"}
    assert found.identify() == before
    assert [file.sha256 for file in before.files] == [
        hashlib.sha256(FILES[file.name]).hexdigest() for file in before.files
    ]


@pytest.mark.usefixtures("online")
def test_a_fetched_file_that_changes_and_changes_back_is_named():
    found = source(patterns=["large/*"])
    first, _ = found.documents(), found.identify()
    next(first)
    (path,) = (file.path for file in found._fetched.values())
    path.resolve().write_bytes(FILES["large/a.jsonl"].replace(b"Document", b"document"))
    assert len(list(found.documents())) == len(texts(60))
    path.resolve().write_bytes(FILES["large/a.jsonl"])
    assert found.misread(found.identify()) == ["large/a.jsonl"]


def test_a_preparation_fetches_no_more_than_it_reads(online, tmp_path, monkeypatch):
    settings: dict[str, object] = {
        "source__kind": "huggingface",
        "source__id": "me/texts",
        "source__files": ["large/*"],
    }
    settings["tokenizer__sample_bytes"] = 500
    monkeypatch.setattr("data_prep.stream.BATCH_DOCUMENTS", 3)
    config = configure(tmp_path, **settings, train_tokens=300, validation_tokens=20, shuffle__buffer=1)
    first = prepare(config, output=tmp_path / "data")
    assert fetched(online) == {"a.jsonl"}
    unplug(monkeypatch, tmp_path / "cache")
    assert prepare(config, output=tmp_path / "again").metadata_sha256 == first.metadata_sha256
    with pytest.raises(EvidenceMissingError, match="could not be fetched"):
        prepare(configure(tmp_path, **settings), output=tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_a_fetched_file_that_is_not_the_listed_one_is_refused(online, tmp_path):
    found = source(patterns=["large/*"])
    found.identify()
    (note,) = (tmp_path / "cache").rglob(f"ledger/{COMMIT}.json")
    note.write_text(note.read_text().replace(hashlib.sha256(FILES["large/a.jsonl"]).hexdigest(), "0" * 64))
    changed = source(patterns=["large/*"])
    changed.identify()
    assert online.url
    with pytest.raises(VerificationError, match="fetched file"):
        next(changed.documents())


def test_no_network_and_no_cache_is_a_clear_error(tmp_path, monkeypatch):
    point(monkeypatch, NOWHERE, tmp_path / "empty")
    with pytest.raises(EvidenceMissingError, match=r"could not be fetched: .*refused"):
        source().identify()
    unplug(monkeypatch, tmp_path / "empty")
    for revision in ("main", COMMIT):
        with pytest.raises(EvidenceMissingError, match=r"could not be fetched.*check the network"):
            source(revision=revision).identify()


def test_what_is_not_there_is_a_matter_of_configuration(online):
    with pytest.raises(ConfigError, match=r"no dataset 'me/nothing'"):
        HubDataset("me/nothing", revision="main", patterns=["*"], column="text", id_column=None).identify()
    with pytest.raises(ConfigError, match="'v2'"):
        source(revision="v2").identify()
    with pytest.raises(ConfigError, match=r"no file .* matches \*\.parquet"):
        source(patterns=["*.parquet"]).identify()
    with pytest.raises(ConfigError, match=r"README\.md.*no format"):
        source(patterns=["README.md"]).identify()
    assert online.requests


def test_a_document_is_named_by_its_id(online):
    assert online.url
    found = source(id_column="id")
    assert next(iter(found.documents())).place == "line 1, id 'doc-0'"
    with pytest.raises(InvalidDocumentError, match="no key 'body'"):
        list(source(column="body").documents())


def test_a_tokenizer_of_the_hub_is_recorded_with_its_commit(online, tmp_path):
    assert online.url
    lines = tmp_path / "corpus.jsonl"
    lines.write_text("\n".join(LINES))
    tokenizer = HubTokenizer(kind="huggingface", id="me/words")
    config = configure(lines).model_copy(update={"tokenizer": tokenizer})
    found = prepare(config, output=tmp_path / "data").manifest.tokenizer
    assert (found.id, found.requested_revision, found.resolved_revision) == ("me/words", "main", COMMIT)
    assert (tmp_path / "data" / "tokenizer.json").read_bytes() == FILES["tokenizer.json"]
    assert prepare(config, output=tmp_path / "data").outcome == "reused"


@pytest.mark.slow
def test_the_library_is_pointed_elsewhere_by_its_own_variables(hub, tmp_path):
    settings = overrides(
        tmp_path, source__kind="huggingface", source__files=["data/*"], source__id="me/texts"
    )
    sets = [part for text in settings for part in ("--set", text)]
    (tmp_path / "empty.yaml").write_text("shard_tokens: 500\n")
    command = [sys.executable, "-P", "-m", "data_prep", "prepare", "--config", str(tmp_path / "empty.yaml")]
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    for name, more in (("one", {}), ("two", {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": NOWHERE})):
        found = subprocess.run(
            [*command, *sets, "--output", str(tmp_path / name)],
            cwd=ROOT,
            env=environment | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert found.returncode == 0, found.stderr
    assert (tmp_path / "one" / "metadata.json").read_bytes() == (
        tmp_path / "two" / "metadata.json"
    ).read_bytes()
