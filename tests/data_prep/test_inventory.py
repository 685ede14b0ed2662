"""The inventory of a dataset, against counting by hand; and where in a file `verify` finds damage."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from data_prep.pipeline import prepare
from ledger.cli.main import main
from ledger.dataset.blocks import block_digests, damaged_ranges
from ledger.dataset.inventory import take_inventory
from ledger.dataset.manifest import open_dataset
from ledger.dataset.verify import verify_dataset
from tests.data_prep.corpus import configure, texts, write_jsonl
from tests.data_prep.reading import stored


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inventory")
    source = write_jsonl(folder / "corpus.jsonl", [*texts(120), *texts(9)])
    prepare(configure(source), output=folder / "data")
    return folder / "data"


def test_an_inventory_counts_what_is_stored(dataset):
    inventory = take_inventory(open_dataset(dataset))
    assert inventory.left_out == {"empty": 2}
    for report in inventory.splits:
        documents = stored(dataset, report.name)
        assert report.documents == len(documents)
        assert report.text_bytes == sum(len(text.encode()) for text in documents)
        assert report.bytes_per_token == report.text_bytes / report.tokens
        assert report.duplicates == len(documents) - len(set(documents))
        assert sum(bucket.documents for bucket in report.histogram) == report.documents
        assert sum(bucket.tokens for bucket in report.histogram) == report.tokens
    assert sum(report.duplicates or 0 for report in inventory.splits) == 13


def test_the_histogram_and_the_quantiles_are_those_of_the_lengths(dataset):
    report = take_inventory(open_dataset(dataset), duplicates=False).splits[0]
    lengths = np.diff(open_dataset(dataset).split("train").document_ends().astype(int), prepend=0)
    assert report.duplicates is None
    assert (report.shortest, report.longest) == (lengths.min(), lengths.max())
    for bucket in report.histogram:
        inside = (lengths >= bucket.at_least) & (lengths < bucket.below)
        assert bucket.documents == int(inside.sum())
    assert report.quantiles["50%"] == sorted(lengths)[(len(lengths) - 1) // 2]


def test_documents_that_cross_chunks_are_compared_whole(dataset, monkeypatch):
    whole = [report.duplicates for report in take_inventory(open_dataset(dataset)).splits]
    monkeypatch.setattr("ledger.dataset.inventory._CHUNK_TOKENS", 7)
    assert [report.duplicates for report in take_inventory(open_dataset(dataset)).splits] == whole


def test_show_prints_it_for_people_and_for_programs(dataset, capsys):
    assert main(["data", "show", str(dataset)]) == 0
    text = capsys.readouterr().out
    for word in ("documents", "tokens a document", "duplicates", "bytes", "validation", "left out"):
        assert word in text
    assert main(["data", "show", str(dataset), "--json", "--no-duplicates"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert [split["name"] for split in value["splits"]] == ["train", "validation"]
    assert value["coverage"] is None
    assert value["splits"][0]["duplicates"] is None


def test_show_says_what_is_wrong_with_its_argument(tmp_path, capsys):
    assert main(["data", "show", str(tmp_path)]) == 3
    assert main(["data", "show", ""]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_blocks_tell_where_bytes_changed(tmp_path, monkeypatch):
    monkeypatch.setattr("ledger.dataset.blocks.BLOCK_BYTES", 100)
    path = tmp_path / "file"
    data = bytearray(range(256)) * 3
    path.write_bytes(data)
    digests = block_digests(path)
    assert digests == [hashlib.sha256(data[at : at + 100]).hexdigest() for at in range(0, 768, 100)]
    assert damaged_ranges(path, digests=digests) == []
    for position in (0, 150, 250, 767):
        data[position] ^= 1
    path.write_bytes(data)
    assert damaged_ranges(path, digests=digests) == [(0, 300), (700, 800)]
    path.write_bytes(data[:650])
    assert damaged_ranges(path, digests=digests) == [(0, 300), (600, 800)]


def test_verify_names_the_shard_and_the_range(tmp_path, monkeypatch):
    monkeypatch.setattr("ledger.dataset.blocks.BLOCK_BYTES", 200)
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(60))
    prepare(configure(source), output=tmp_path / "data")
    path = tmp_path / "data" / "train-00001.npy"
    data = bytearray(path.read_bytes())
    data[450] ^= 1
    path.write_bytes(data)
    (found,) = verify_dataset(tmp_path / "data").errors
    assert found.file == "train-00001.npy"
    assert found.error.place == "bytes 400 to 600"
    assert "bytes 400 to 600: its bytes changed" in str(found)


def test_without_notes_damage_is_found_all_the_same(tmp_path):
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(60))
    prepare(configure(source), output=tmp_path / "data")
    (tmp_path / "data" / "preparation.json").unlink()
    path = tmp_path / "data" / "train-00001.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    (found,) = verify_dataset(tmp_path / "data").errors
    assert (found.file, found.error.place) == ("train-00001.npy", None)
