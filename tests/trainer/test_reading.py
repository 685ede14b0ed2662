"""Training on shuffled groups, packed documents and mixes; fetching ahead; verification in the background."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ledger.audit import reconcile
from ledger.cli.main import main
from ledger.config import leaf_classes, load_config
from ledger.dataset.background import BackgroundVerification
from ledger.dataset.packing import DocumentLayout
from ledger.errors import ConfigError, RefusedError, VerificationError
from ledger.records.events import DataVerified, SessionEnd, Train
from tests.ledger.dataset.builders import build_dataset, documents
from tests.trainer.records import assert_same_training, events
from tests.trainer.tiny import StopAfter, tiny_config, train
from trainer.config import TrainerConfig
from trainer.data import IGNORED, TrainingData, counted_targets
from trainer.model.decoder import Decoder
from trainer.sources import open_sources

CONFIGS = Path(__file__).parents[2] / "configs"
VOCABULARY = 64
SHUFFLE = {"shuffle": {"group_shards": 2, "seed": 1}}


@pytest.fixture(scope="module")
def books(tmp_path_factory) -> Path:
    splits = {"train": documents(50, vocabulary=VOCABULARY), "validation": [[9, 9, 9, 0]]}
    return build_dataset(
        tmp_path_factory.mktemp("books") / "data", splits=splits, vocabulary=VOCABULARY
    ).directory


@pytest.fixture(scope="module")
def web(tmp_path_factory) -> Path:
    splits = {"train": documents(31, length=11, vocabulary=VOCABULARY)}
    return build_dataset(
        tmp_path_factory.mktemp("web") / "data", splits=splits, vocabulary=VOCABULARY
    ).directory


KINDS = ("shuffled", "packed", "mixed", "everything")


@pytest.fixture
def data(request, books, web) -> dict[str, Any]:
    """Return a data section of the kind asked for."""
    mix: dict[str, Any] = {
        "sources": {"books": {"path": str(books), "weight": 2}, "web": {"path": str(web), "weight": 1}}
    }
    kinds: dict[str, dict[str, Any]] = {
        "shuffled": SHUFFLE,
        "packed": {"packing": "documents"},
        "mixed": mix,
        "everything": SHUFFLE | {"packing": "documents", "mix_seed": 3} | mix,
    }
    return kinds[request.param]


def small(books: Path, data: dict[str, Any], **sections: Any) -> TrainerConfig:
    sections = {"batch": {"sequence": 8, "accumulation": 2}, "run": {"target_step": 16}} | sections
    return tiny_config(books, data=data, **sections)


STOPS = [*((kind, (7, 4)) for kind in KINDS), ("everything", (3,)), ("everything", (9,))]


@pytest.mark.parametrize(("data", "stops"), STOPS, indirect=["data"], ids=str)
def test_a_resumed_run_is_the_one_that_never_stopped(data, books, stops, tmp_path):
    config = small(books, data)
    train(config, tmp_path / "straight")
    for number, attempts in enumerate(stops):
        resume = "auto" if number else None
        train(config, tmp_path / "resumed", resume=resume, stop=StopAfter(attempts=attempts))
    train(config, tmp_path / "resumed", resume="auto")
    assert_same_training(tmp_path / "resumed", tmp_path / "straight")
    verdict = reconcile(tmp_path / "resumed", rehash=True)
    assert verdict.findings == []
    assert verdict.verdict == "passed"


@pytest.mark.parametrize("data", ["everything"], indirect=True)
def test_fetching_ahead_changes_nothing_that_is_recorded(data, books, tmp_path):
    for ahead in (0, 4):
        train(small(books, data | {"prefetch": ahead}), tmp_path / f"{ahead}")
    assert_same_training(tmp_path / "0", tmp_path / "4")


def test_masked_positions_do_not_count_and_the_audit_knows_why(books, tmp_path):
    train(small(books, {"packing": "documents"}), tmp_path / "packed")
    verdict = reconcile(tmp_path / "packed")
    assert verdict.branch is not None
    assert verdict.branch.loss_tokens < verdict.branch.tokens_seen
    assert "LG215 equality" not in verdict.not_checked


def test_a_recipe_that_masks_nothing_is_held_to_it(books, tmp_path):
    train(small(books, {}), tmp_path / "plain")
    verdict = reconcile(tmp_path / "plain")
    assert verdict.branch is not None
    assert verdict.branch.loss_tokens == verdict.branch.tokens_seen
    assert "LG215 equality" not in verdict.not_checked


@pytest.mark.parametrize("steps", [9, 40])
def test_what_a_run_read_of_a_dataset_is_what_its_batches_are(steps, books, tmp_path, capsys):
    """Counted again from the shards and the digests in the log alone; 40 steps cross the end of an epoch."""
    train(small(books, {}, run={"target_step": steps}), tmp_path / "run")
    assert main(["data", "show", str(books), "--run", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["coverage"]["train"]
    stream = np.concatenate([np.load(path) for path in sorted(books.glob("train-?????.npy"))])
    offsets = {batch_name(stream, offset): offset for offset in range(0, stream.size - 16, 16)}
    read = [
        offsets[name]
        for event in events(tmp_path / "run")
        if isinstance(event, Train)
        for name in event.batches
    ]
    assert found["positions_processed"] == 16 * len(read) == 16 * 2 * steps
    assert found["distinct_tokens"] == 16 * len(set(read))
    assert (found["epoch_tokens"], found["epochs"]) == (16 * len(offsets), len(read) // len(offsets))


def test_of_a_mix_the_source_that_reads_the_dataset_is_shown(books, web, tmp_path, capsys):
    sources = {"one": {"path": str(books), "weight": 2}, "two": {"path": str(web), "weight": 1}}
    train(small(books, {"sources": sources}), tmp_path / "mixed")
    coverage = reconcile(tmp_path / "mixed").account["coverage"]
    assert main(["data", "show", str(web), "--run", str(tmp_path / "mixed"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["coverage"] == {"two": coverage["two"]}
    other = build_dataset(tmp_path / "other", splits={"train": documents(31)}, vocabulary=VOCABULARY)
    assert main(["data", "show", str(other.directory), "--run", str(tmp_path / "mixed")]) == 1
    assert "a mix of other datasets: one, two" in capsys.readouterr().err


def batch_name(stream: np.ndarray, offset: int) -> str:
    """Return how the log names the microbatch of two sequences of 8 that begins there."""
    rows = [stream[start : start + 9].tobytes() for start in (offset, offset + 8)]
    share = hashlib.sha256(b"".join(rows)).digest()
    return hashlib.sha256(share).hexdigest()[:16]


def test_the_account_tells_what_each_source_gave(books, web, tmp_path):
    sources = {"books": {"path": str(books), "weight": 2}, "web": {"path": str(web), "weight": 1}}
    train(small(books, {"sources": sources}), tmp_path / "mixed")
    verdict = reconcile(tmp_path / "mixed")
    coverage = verdict.account["coverage"]
    assert set(coverage) == {"books", "web"}
    assert verdict.branch is not None
    assert sum(found["positions_processed"] for found in coverage.values()) == verdict.branch.tokens_seen
    assert all(found["distinct_tokens"] <= found["epoch_tokens"] for found in coverage.values())


def test_a_mix_that_trains_on_what_is_held_out_is_warned_of(books, tmp_path):
    leaking = build_dataset(
        tmp_path / "web", splits={"train": [[9, 9, 9, 0]] * 20}, vocabulary=VOCABULARY
    ).directory
    sources = {"books": {"path": str(books), "weight": 2}, "web": {"path": str(leaking), "weight": 1}}
    train(small(books, {"sources": sources}), tmp_path / "run")
    verdict = reconcile(tmp_path / "run", rehash=True)
    warned = [found for found in verdict.findings if found.severity == "warning" and found.rule == "LG504"]
    assert len(warned) == 1
    assert "20 documents" in warned[0].message


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"shuffle": {"group_shards": 1, "seed": 1}}, "data.shuffle.group_shards"),
        ({"shuffle": {"group_shards": 2, "seed": 2}}, "data.shuffle.seed"),
        ({"packing": "documents"}, "data.packing"),
        ({"mix_seed": 9}, "data.mix_seed"),
    ],
)
def test_another_order_is_another_experiment(change, field, books, tmp_path):
    train(small(books, SHUFFLE), tmp_path / "run", stop=StopAfter(attempts=2))
    with pytest.raises(RefusedError, match=field):
        train(small(books, SHUFFLE | change), tmp_path / "run", resume="auto")


def test_another_weight_is_another_experiment_and_another_place_is_not(books, web, tmp_path):
    def sources(path: Path, weight: float) -> dict[str, Any]:
        other = {"path": str(path), "weight": weight}
        return {"sources": {"books": {"path": str(books), "weight": 2}, "web": other}}

    train(small(books, sources(web, 1)), tmp_path / "run", stop=StopAfter(attempts=2))
    with pytest.raises(RefusedError, match=r"data\.sources\.web\.weight"):
        train(small(books, sources(web, 3)), tmp_path / "run", resume="auto")
    moved = tmp_path / "moved"
    moved.symlink_to(web)
    train(small(books, sources(moved, 1)), tmp_path / "run", resume="auto")


def test_a_mix_of_two_tokenizers_is_refused(books, dataset, tmp_path):
    sources = {"books": {"path": str(books), "weight": 1}, "other": {"path": str(dataset), "weight": 1}}
    with pytest.raises(RefusedError, match=r"data\.sources\.other.*tokenizer"):
        train(small(books, {"sources": sources}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "data", [{"repeat": 2, "sources": {"a": {"path": "a", "weight": 1}}}, {"sources": {}}]
)
def test_a_mix_that_makes_no_sense_is_refused(data, books):
    with pytest.raises(ValueError, match="data"):
        small(books, data)


# Documents that do not see each other.


@pytest.fixture
def decoder(books) -> Decoder:
    torch.manual_seed(0)
    config = small(books, {}, model={"vocabulary": VOCABULARY}).model
    return Decoder(config, sequence=8)


def test_a_document_does_not_depend_on_the_one_before(decoder):
    documents_of = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2]])
    tokens = torch.randint(1, VOCABULARY, (1, 8))
    other = tokens.clone()
    other[0, :3] = (other[0, :3] + 1) % VOCABULARY
    with torch.no_grad():
        assert torch.equal(decoder(tokens, documents_of)[0, 3:], decoder(other, documents_of)[0, 3:])
        assert not torch.equal(decoder(tokens)[0, 3:], decoder(other)[0, 3:])
        alone = decoder(tokens[:, 3:7])
        torch.testing.assert_close(decoder(tokens, documents_of)[:, 3:7], alone, atol=1e-5, rtol=1e-5)


def test_one_document_is_plain_causal_attention(decoder):
    tokens = torch.randint(1, VOCABULARY, (2, 8))
    with torch.no_grad():
        packed = decoder(tokens, torch.zeros(2, 8, dtype=torch.int32))
        torch.testing.assert_close(packed, decoder(tokens), atol=1e-5, rtol=1e-5)


def test_targets_across_an_end_are_ignored():
    counted = np.array([[True, False, True]])
    layout = DocumentLayout(np.array([[0, 0, 1]], dtype=np.int32), counted)
    targets = counted_targets(np.array([[4, 5, 6]], dtype="<u2"), layout, torch.device("cpu"))
    assert targets.tolist() == [[4, IGNORED, 6]]


def test_the_loss_of_a_window_is_the_mean_over_all_positions_that_count(books, tmp_path):
    """Two microbatches of one window weigh as many positions as count in them, as one of twice the size would."""
    losses = []
    for micro_batch, accumulation in ((4, 1), (2, 2)):
        batch = {"sequence": 8, "micro_batch": micro_batch, "accumulation": accumulation}
        run = tmp_path / f"{accumulation}"
        train(small(books, {"packing": "documents"}, batch=batch, run={"target_step": 1}), run)
        (event,) = [event for event in events(run) if isinstance(event, Train)]
        losses.append((event.loss, event.grad_norm, event.loss_tokens))
    assert losses[0][2] == losses[1][2]
    assert losses[0][:2] == pytest.approx(losses[1][:2], rel=1e-5)


# Verification while training.


@pytest.fixture
def verified_at_once(monkeypatch):
    """Let the verification finish before the first microbatch, so that a test needs no waiting."""
    start = BackgroundVerification.start

    def start_and_wait(verification: BackgroundVerification) -> None:
        start(verification)
        verification.wait()

    monkeypatch.setattr(BackgroundVerification, "start", start_and_wait)


@pytest.mark.usefixtures("verified_at_once")
def test_shards_that_were_rehashed_are_recorded_once(books, tmp_path):
    train(small(books, {"verify": True}), tmp_path / "run")
    verified = [event for event in events(tmp_path / "run") if isinstance(event, DataVerified)]
    assert len({event.shard for event in verified}) == len(verified)
    assert {"train-00000.npy", "train-00000.ends.npy", "validation-00000.npy"} <= {
        event.shard for event in verified
    }
    verdict = reconcile(tmp_path / "run")
    assert set(verdict.account["verified_while_training"]) == {event.shard for event in verified}


@pytest.mark.usefixtures("verified_at_once")
def test_the_files_of_a_mix_are_named_by_their_source(books, web, tmp_path):
    sources = {"books": {"path": str(books), "weight": 2}, "web": {"path": str(web), "weight": 1}}
    train(small(books, {"sources": sources, "verify": True}), tmp_path / "run")
    names = {event.shard for event in events(tmp_path / "run") if isinstance(event, DataVerified)}
    assert {"books/train-00000.npy", "web/train-00000.npy"} <= names
    assert reconcile(tmp_path / "run").findings == []


@pytest.mark.usefixtures("verified_at_once")
def test_a_damaged_shard_fails_the_run_and_is_named(tmp_path):
    splits = {"train": documents(50, vocabulary=VOCABULARY), "validation": [[9, 9, 9, 0]]}
    dataset = build_dataset(tmp_path / "data", splits=splits, vocabulary=VOCABULARY)
    path = dataset.directory / "train-00002.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(VerificationError, match=r"train-00002\.npy changed"):
        train(small(dataset.directory, {"verify": True}), tmp_path / "damaged")
    end = events(tmp_path / "damaged")[-1]
    assert isinstance(end, SessionEnd)
    assert end.status == "failed"
    assert "train-00002.npy" in (end.error or "")


def test_without_it_nothing_is_hashed(books):
    config = small(books, {})
    data = TrainingData(open_sources(config.data), config)
    data.begin_verification()
    assert data.verified() == []
    data.close()


# The configuration.


MIX = "data.sources.web={path: web, weight: 2}"


def test_each_leaf_of_a_source_has_its_own_class():
    config = load_config([CONFIGS / "tiny.yaml"], [MIX], model=TrainerConfig)
    classes = leaf_classes(config)
    assert classes["data.sources.web.path"] == "volatile"
    assert classes["data.sources.web.weight"] == "identity"
    assert "data.sources" not in classes
    assert (
        leaf_classes(load_config([CONFIGS / "tiny.yaml"], model=TrainerConfig))["data.sources"] == "identity"
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.sources.web.wieght=2", r"data\.sources\.web\.wieght.*data\.sources\.web\.weight"),
        ("data.sources.web.weight=0", r"data\.sources\.web\.weight is 0"),
        ("data.shuffle.group=2", r"data\.shuffle\.group"),
        ("data.packing=docs", r"data\.packing.*'documents'"),
    ],
)
def test_a_mistake_in_a_source_is_named_by_its_place(override, message):
    with pytest.raises(ConfigError, match=message):
        load_config([CONFIGS / "tiny.yaml"], [MIX, override], model=TrainerConfig)
