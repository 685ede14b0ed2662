"""Preparation from end to end: what is stored, what is reused, what is refused."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_prep.config import PreparationConfig
from data_prep.pipeline import prepare
from data_prep.progress import Quiet
from data_prep.split import Splitter
from ledger.config import load_config
from ledger.dataset.manifest import open_dataset
from ledger.dataset.verify import check_tokens, verify_dataset
from ledger.errors import (
    ConfigError,
    EvidenceMissingError,
    InvalidDocumentError,
    RefusedError,
    UsageError,
    VerificationError,
)
from tests.data_prep.corpus import EOS, configure, texts, write_jsonl
from tests.data_prep.reading import stored

SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "corpus.jsonl", texts(120))


def expected(split: str, count: int = 120) -> list[str]:
    splitter = Splitter(key="ledger", validation_fraction=0.2)
    return [text for text in texts(count) if text and splitter.assign(text.encode()) == split]


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "preparation.json"}


def test_every_document_is_stored_exactly_once_in_its_split(source, tmp_path):
    prepared = prepare(configure(source), output=tmp_path / "data")
    train, validation = stored(tmp_path / "data", "train"), stored(tmp_path / "data", "validation")
    assert validation == expected("validation")
    assert sorted(train) == sorted(expected("train"))
    assert train != expected("train")
    assert prepared.outcome == "prepared"
    assert prepared.manifest.left_out == {"empty": 1}
    assert any(EOS in text for text in train + validation)


def test_a_prepared_dataset_verifies_and_its_totals_are_right(source, tmp_path):
    prepared = prepare(configure(source), output=tmp_path / "data")
    assert verify_dataset(tmp_path / "data").problems == ()
    assert not list(check_tokens(tmp_path / "data"))
    for name, split in prepared.manifest.splits.items():
        assert split.bytes == sum(len(text.encode()) for text in expected(name))
        assert len(split.shards) > 1


def test_the_bytes_depend_on_nothing_but_the_configuration(source, tmp_path):
    prepare(configure(source), output=tmp_path / "one")
    moved = source.rename(tmp_path / "elsewhere.jsonl")
    (tmp_path / "deep").mkdir()
    final = moved.rename(tmp_path / "deep" / "corpus.jsonl")
    prepare(configure(final), output=tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")


@pytest.mark.parametrize("batch", [1, 3, 1_000])
def test_the_bytes_do_not_depend_on_how_many_documents_are_tokenized_at_once(
    batch, source, tmp_path, monkeypatch
):
    prepare(configure(source, train_tokens=1_500), output=tmp_path / "one")
    monkeypatch.setattr("data_prep.stream.BATCH_DOCUMENTS", batch)
    prepare(configure(source, train_tokens=1_500), output=tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_compression_of_the_input_changes_its_identity_alone(source, tmp_path):
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(source.read_bytes(), mtime=0))
    one = prepare(configure(source), output=tmp_path / "one").manifest
    two = prepare(configure(tmp_path / "corpus.jsonl.gz"), output=tmp_path / "two").manifest
    assert one.splits == two.splits
    assert one.source != two.source


def test_the_shard_size_changes_no_token(source, tmp_path):
    prepare(configure(source), output=tmp_path / "one")
    prepare(configure(source, shard_tokens=77), output=tmp_path / "two")
    assert stored(tmp_path / "one", "train") == stored(tmp_path / "two", "train")


def test_exact_duplicates_stay_together(tmp_path):
    source = write_jsonl(tmp_path / "corpus.jsonl", texts(60) * 3)
    prepare(configure(source), output=tmp_path / "data")
    train, validation = stored(tmp_path / "data", "train"), stored(tmp_path / "data", "validation")
    assert not set(train) & set(validation)
    assert len(train) + len(validation) == 3 * 64


def test_train_tokens_stops_after_the_document_that_reaches_it(source, tmp_path):
    whole = prepare(configure(source), output=tmp_path / "whole").manifest
    part = prepare(configure(source, train_tokens=1_000), output=tmp_path / "part").manifest
    assert whole.splits["train"].tokens > part.splits["train"].tokens >= 1_000
    documents = stored(tmp_path / "part", "train")
    assert documents == stored(tmp_path / "whole", "train")[: len(documents)]
    reader = open_dataset(tmp_path / "part").split("train")
    assert reader.document_ends()[-2] < 1_000
    assert part.preparation.validation_tokens == 250
    assert whole.splits["validation"].tokens > part.splits["validation"].tokens >= 250


def test_a_source_that_runs_out_says_so(source, tmp_path):
    accepted = configure(source, train_tokens=10**6, if_short="accept")
    tokens = prepare(accepted, output=tmp_path / "data").manifest.splits["train"].tokens
    prepare(configure(source, train_tokens=tokens), output=tmp_path / "all")
    with pytest.raises(EvidenceMissingError) as caught:
        prepare(configure(source, train_tokens=tokens + 1), output=tmp_path / "more")
    assert f"ran out after {tokens} train tokens; expected at least {tokens + 1}, as train" in str(
        caught.value
    )
    with pytest.raises(EvidenceMissingError, match=rf"at least 10001, as train_tokens={tokens}, rounded up"):
        prepare(
            configure(source, train_tokens=tokens, shard_tokens=5_000, group_shards=2),
            output=tmp_path / "grouped",
        )
    assert not (tmp_path / "more").exists()


def test_a_fraction_of_nothing_makes_no_validation(source, tmp_path):
    prepared = prepare(configure(source, split__validation_fraction=0), output=tmp_path / "data")
    assert set(prepared.manifest.splits) == {"train"}


def test_a_split_without_a_document_is_an_error(tmp_path):
    source = write_jsonl(tmp_path / "corpus.jsonl", ["only one"])
    with pytest.raises(EvidenceMissingError, match="fell into"):
        prepare(configure(source), output=tmp_path / "data")


def test_again_verifies_and_reuses(source, tmp_path):
    first = prepare(configure(source), output=tmp_path / "data")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()}
    again = prepare(configure(source), output=tmp_path / "data")
    assert (again.outcome, again.metadata_sha256) == ("reused", first.metadata_sha256)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()} == before


CHANGES = {
    "shuffle__seed": (5, "preparation.shuffle.seed (there 0, asked for 5)"),
    "shuffle__buffer": (7, "preparation.shuffle.buffer"),
    "split__key": ("other", "preparation.split.key (there 'ledger', asked for 'other')"),
    "split__validation_fraction": (0.3, "preparation.split.validation_fraction"),
    "tokenizer__vocabulary": (301, "tokenizer.training.vocabulary"),
    "tokenizer__sample_bytes": (99, "tokenizer.training.sample_bytes"),
    "tokenizer__eos_token": ("<eos>", "tokenizer.eos_token"),
    "train_tokens": (1_000, "preparation.train_tokens (there null, asked for 1000)"),
    "shard_tokens": (499, "preparation.shard_tokens"),
    "if_short": ("accept", "preparation.if_short"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_configuration_is_refused_and_the_difference_named(name, source, tmp_path):
    prepare(configure(source), output=tmp_path / "data")
    before = files(tmp_path / "data")
    value, difference = CHANGES[name]
    with pytest.raises(RefusedError) as caught:
        prepare(configure(source, **{name: value}), output=tmp_path / "data")
    assert difference in str(caught.value)
    assert files(tmp_path / "data") == before


def test_another_input_is_refused(source, tmp_path):
    prepare(configure(source), output=tmp_path / "data")
    write_jsonl(source, texts(121))
    with pytest.raises(RefusedError, match=r"source\.files\[0\]\.sha256"):
        prepare(configure(source), output=tmp_path / "data")


def test_damage_is_never_built_over(source, tmp_path):
    prepare(configure(source), output=tmp_path / "data")
    path = tmp_path / "data" / "train-00001.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 4
    path.write_bytes(data)
    with pytest.raises(VerificationError) as caught:
        prepare(configure(source), output=tmp_path / "data")
    assert "train-00001.npy" in str(caught.value)
    assert f"remove {tmp_path / 'data'}" in caught.value.__notes__[0]
    assert path.read_bytes() == bytes(data)


def test_what_is_no_dataset_is_left_alone(source, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "thesis.txt").write_text("years of work")
    with pytest.raises(RefusedError, match="no dataset"):
        prepare(configure(source), output=tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["thesis.txt"]


def test_a_path_of_nothing_is_refused(source):
    with pytest.raises(UsageError):
        prepare(configure(source), output="")


def test_missing_folders_above_the_output_are_made(source, tmp_path):
    prepare(configure(source), output=tmp_path / "absent" / "deep" / "data")
    assert verify_dataset(tmp_path / "absent" / "deep" / "data").problems == ()


class Meddler(Quiet):
    """Changes the input when a stage begins."""

    def __init__(self, change: Callable[[], object], *, stage: str) -> None:
        self._change = change
        self._stage = stage

    def stage(self, name: str, **_options: object) -> None:
        if name.startswith(self._stage):
            self._change()


def flip(path: Path) -> None:
    """Change one byte and nothing that a listing shows."""
    times = path.stat()
    path.write_bytes(path.read_bytes().replace(b"Document", b"document", 1))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def replace(path: Path) -> None:
    write_jsonl(path.with_name("other"), texts(9)).replace(path)


CHANGES_MEANWHILE = {
    "one byte, of the same size and time": flip,
    "cut in a line": lambda path: os.truncate(path, path.stat().st_size - 5),
    "cut behind a line": lambda path: path.write_bytes(b"".join(path.read_bytes().splitlines(True)[:-3])),
    "cut to nothing": lambda path: os.truncate(path, 0),
    "a line more": lambda path: path.write_bytes(path.read_bytes() + b'{"text":"late"}\n'),
    "another file": replace,
}


MOMENTS = [*((name, "tokenize") for name in CHANGES_MEANWHILE), (next(iter(CHANGES_MEANWHILE)), "check that")]


@pytest.mark.parametrize(("name", "stage"), MOMENTS)
def test_an_input_that_changes_meanwhile_is_an_error(name, stage, tmp_path):
    """One of several files; also where it is read as if it had ended, or as if a document were bad."""
    paths = [write_jsonl(tmp_path / f"{number}.jsonl", texts(20)) for number in range(3)]
    config = configure(paths[0], source__files=list(map(str, paths)), train_tokens=1_000)
    meddler = Meddler(lambda: CHANGES_MEANWHILE[name](paths[1]), stage=stage)
    with pytest.raises(RefusedError, match=r"input changed while it was being prepared: 1\.jsonl \("):
        prepare(config, output=tmp_path / "data", progress=meddler)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.jsonl", "1.jsonl", "2.jsonl"]


def write_table(path: Path, documents: list[str]) -> Path:
    pq.write_table(pa.table({"text": documents}), path, row_group_size=5)
    return path


def write_arrow(path: Path, documents: list[str]) -> Path:
    table = pa.table({"text": documents})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    return path


def write_zipped(path: Path, documents: list[str]) -> Path:
    path.write_bytes(gzip.compress(write_jsonl(path.with_name("plain"), documents).read_bytes(), mtime=0))
    path.with_name("plain").unlink()
    return path


READ_FORMS = {
    "jsonl": ("a.jsonl", write_jsonl),
    "jsonl of gzip": ("a.jsonl.gz", write_zipped),
    "parquet": ("a.parquet", write_table),
    "arrow": ("a.arrow", write_arrow),
}


class Fickle(Quiet):
    """Gives a file other content for one stage of a preparation, and that of before for the next."""

    def __init__(self, path: Path, *, other: bytes, stage: str, is_replaced: bool) -> None:
        self._path, self._other, self._stage = path, other, stage
        self._before, self._is_replaced = path.read_bytes(), is_replaced
        self._is_other = False

    def stage(self, name: str, **_options: object) -> None:
        if self._is_other or name.startswith(self._stage):
            self._is_other = not self._is_other
            self._write(self._other if self._is_other else self._before)

    def _write(self, data: bytes) -> None:
        if self._is_replaced:
            self._path.with_name("other").write_bytes(data)
            self._path.with_name("other").replace(self._path)
        else:
            self._path.write_bytes(data)


@pytest.mark.parametrize(
    ("form", "is_replaced", "stage"),
    [
        ("jsonl", False, "train the tokenizer"),
        ("jsonl of gzip", True, "tokenize"),
        ("parquet", False, "tokenize"),
        ("arrow", True, "tokenize"),
    ],
)
def test_an_input_that_changes_and_changes_back_is_an_error(form, is_replaced, stage, tmp_path):
    name, write = READ_FORMS[form]
    other = write(tmp_path / name, [*texts(100), "another document"]).read_bytes()
    path = write(tmp_path / name, texts(120))
    meddler = Fickle(path, other=other, stage=stage, is_replaced=is_replaced)
    config = configure(path, source__kind=form.split()[0], train_tokens=600)
    with pytest.raises(RefusedError, match=rf"input changed while it was being prepared: {name} \("):
        prepare(config, output=tmp_path / "data", progress=meddler)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_input_that_is_only_touched_meanwhile_is_no_error(form, tmp_path):
    """Neither time nor inode decides."""
    name, write = READ_FORMS[form]
    path = write(tmp_path / name, texts(120))
    meddler = Fickle(path, other=path.read_bytes(), stage="tokenize", is_replaced=True)
    prepared = prepare(
        configure(path, source__kind=form.split()[0], train_tokens=600),
        output=tmp_path / "data",
        progress=meddler,
    )
    assert prepared.outcome == "prepared"


@pytest.mark.parametrize(
    "settings",
    [
        {"train_tokens": 2**53 - 1, "group_shards": 3},
        {"train_tokens": 2**53 - 1, "split__validation_fraction": 0.9},
        {"validation_tokens": 5, "split__validation_fraction": 0},
    ],
    ids=str,
)
def test_what_nobody_could_count_or_hold_out_is_a_matter_of_configuration(settings, source, tmp_path):
    with pytest.raises(ConfigError, match=r"train_tokens|validation_tokens"):
        prepare(configure(source, **settings), output=tmp_path / "data")


def test_a_bad_document_leaves_nothing_behind(tmp_path):
    source = tmp_path / "corpus.jsonl"
    source.write_text("".join(f'{{"text":"document {n}"}}\n' for n in range(50)) + '{"text":"\\udfff"}\n')
    with pytest.raises(InvalidDocumentError, match=r"line 51.*lone surrogate"):
        prepare(configure(source), output=tmp_path / "data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl"]


def test_a_given_tokenizer_is_copied_and_identified_by_content(source, tmp_path):
    prepare(configure(source), output=tmp_path / "first")
    given = tmp_path / "mine.json"
    given.write_bytes((tmp_path / "first" / "tokenizer.json").read_bytes())
    config = load_config(
        [],
        [
            "source.kind=jsonl",
            f"source.files={json.dumps([str(source)])}",
            "tokenizer.kind=file",
            f"tokenizer.path={given}",
            "split.validation_fraction=0.2",
            "shuffle.buffer=20",
        ],
        model=PreparationConfig,
    )
    prepared = prepare(config, output=tmp_path / "second")
    assert (tmp_path / "second" / "tokenizer.json").read_bytes() == given.read_bytes()
    assert stored(tmp_path / "second", "train") == stored(tmp_path / "first", "train")
    assert prepared.manifest.tokenizer.training is None
    given.write_text(json.dumps(json.loads(given.read_bytes()), indent=1))
    with pytest.raises(RefusedError, match=r"tokenizer\.sha256"):
        prepare(config, output=tmp_path / "second")


def test_metadata_is_stored_in_the_form_that_is_hashed(source, tmp_path):
    prepared = prepare(configure(source), output=tmp_path / "data")
    hashed = hashlib.sha256((tmp_path / "data" / "metadata.json").read_bytes())
    assert hashed.hexdigest() == prepared.metadata_sha256


def test_the_notes_hold_a_configuration_that_loads(source, tmp_path):
    prepare(configure(source), output=tmp_path / "data")
    notes = json.loads((tmp_path / "data" / "preparation.json").read_bytes())
    assert PreparationConfig.model_validate(notes["config"]) == configure(source)
    assert "tokenizers" in notes["packages"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the larger texts of ../shared/data are not here")
def test_duplicates_of_a_real_corpus_do_not_leak(tmp_path):
    settings = {"shard_tokens": 20_000, "train_tokens": 60_000, "tokenizer__sample_bytes": 100_000}
    config = configure(SHARED / "fortunes.jsonl.gz", shuffle__buffer=20_000, **settings)
    prepared = prepare(config, output=tmp_path / "data")
    train, validation = stored(tmp_path / "data", "train"), stored(tmp_path / "data", "validation")
    assert not set(train) & set(validation)
    assert prepared.manifest.splits["train"].tokens >= 60_000
    assert (tmp_path / "data" / "train-00000.npy").stat().st_size == 128 + 2 * 20_000


def test_an_input_that_vanishes_meanwhile_is_an_error(source, tmp_path):
    with pytest.raises(EvidenceMissingError, match=r"corpus\.jsonl: there is no such file"):
        prepare(
            configure(source), output=tmp_path / "data", progress=Meddler(source.unlink, stage="tokenize")
        )
    assert list(tmp_path.iterdir()) == []
