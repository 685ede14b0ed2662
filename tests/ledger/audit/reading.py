"""Toy runs that read real datasets: sequential, shuffled, packed, mixed, each with room for a fault of the loader."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.checkpoints import CompleteCheckpoint, read_trainer_state
from ledger.dataset.manifest import Dataset
from ledger.dataset.mix import mix_sha256
from ledger.dataset.order import Geometry
from ledger.dataset.reader import Reader
from ledger.dataset.rule import parse_reading_rule
from ledger.dataset.source import Microbatch
from ledger.recorder import RunRecorder
from ledger.records.documents import Recipe
from ledger.records.parts import Cursor, DataIdentities, Start
from tests.ledger.dataset.builders import build_dataset
from tests.support.toy import Before, ToyLoop, ToySettings, mortal, plan_of, train

GEOMETRY = Geometry(micro_batch=2, sequence=4)
TEXTS = [[5, 9, 3 + n, 7, 0] for n in range(14)]
"""Eight microbatches, and a tail."""
OTHER_TEXTS = [[8, 100 + n, 6, 0] for n in range(17)]
DUPLICATES = [[5, 9, 3, 7, 0]] * 30
HELD_OUT = [[4, 2, 0]]


@dataclass(frozen=True, kw_only=True)
class DataSettings(ToySettings):
    """Settings of a toy whose recipe has a data section."""

    data: Mapping[str, Any] = field(default_factory=dict)

    def recipe(self) -> Recipe:
        """Return the recipe with its data section."""
        recipe = super().recipe()
        config = recipe.config | {
            "data": {"loss_mask": None} | dict(self.data),
            "batch": recipe.config["batch"] | {"micro_batch": GEOMETRY.micro_batch},
        }
        classes = recipe.classes | {"batch.micro_batch": "identity", "data.path": "volatile"}
        return Recipe(config=config, classes=classes)


@dataclass
class DataLoop(ToyLoop):
    """A toy that draws from datasets and reports what it drew. A subclass that overrides a method is a faulty one."""

    reader: Reader = None  # type: ignore[assignment]
    cursor: Cursor = field(default_factory=dict)
    """Where the session's plan says that reading begins."""

    def prepare(self, corpora: Corpora) -> None:
        """Open what is read."""
        self.reader = corpora.reader()
        self.cursor = self.reader.cursor

    def draw(self) -> tuple[bytes, Cursor]:
        """Return the next microbatch's digest and the cursor behind it."""
        batch = self.read()
        self.draws += 1
        self.loss_tokens = batch.loss_tokens
        return batch.digest, batch.cursor

    def read(self) -> Microbatch:
        """Read the next microbatch."""
        return self.reader.next()

    def fast_forward(self, cursor: Cursor) -> None:
        """Stand where a checkpoint says."""
        self.reader.restore(cursor)

    def restore(self, checkpoint: CompleteCheckpoint) -> None:
        """Take up a checkpoint's state."""
        self.restore_tensors(checkpoint.folder)
        state = read_trainer_state(checkpoint)
        self.draws, self.cursor = state.rng["draws"], state.cursor
        self.fast_forward(state.cursor)


@dataclass(frozen=True, kw_only=True)
class Corpora:
    """The datasets of a run and what its recipe says of them."""

    datasets: Mapping[str, Dataset]
    data: Mapping[str, Any]

    @property
    def identity(self) -> DataIdentities:
        """The identities that the sessions name."""
        digests = {name: dataset.metadata_sha256 for name, dataset in self.datasets.items()}
        is_mix = "sources" in self.data
        return DataIdentities(train=mix_sha256(digests) if is_mix else digests["train"], validation=None)

    def reader(self) -> Reader:
        """Return a reader at the beginning."""
        splits = {name: dataset.split("train") for name, dataset in self.datasets.items()}
        return parse_reading_rule(self.data).reader(splits, geometry=GEOMETRY)


def one_source(
    run_dir: Path, documents: list[list[int]], *, held_out: list[list[int]] = HELD_OUT, **data: Any
) -> Corpora:
    """Build a dataset beside the run; `data` is what else the recipe's data section says."""
    folder = run_dir.parent / f"{run_dir.name}-data"
    dataset = build_dataset(folder, splits={"train": documents, "validation": held_out}, shard_tokens=20)
    return Corpora(datasets={"train": dataset}, data={"path": str(folder)} | data)


def two_sources(run_dir: Path, **data: Any) -> Corpora:
    """Build a mix of two datasets beside the run, three to one."""
    folder = run_dir.parent / f"{run_dir.name}-data"
    folder.mkdir()
    texts = {"books": (TEXTS, 3.0), "web": (OTHER_TEXTS, 1.0)}
    datasets = {
        name: build_dataset(folder / name, splits={"train": documents}, shard_tokens=20)
        for name, (documents, _) in texts.items()
    }
    sources = {name: {"path": str(folder / name), "weight": weight} for name, (_, weight) in texts.items()}
    return Corpora(datasets=datasets, data={"sources": sources, "mix_seed": 5} | data)


def run_on(
    run_dir: Path,
    corpora: Corpora,
    *,
    start: Start = "fresh",
    loop: type[DataLoop] = DataLoop,
    before: Before = lambda _recorder, _moment: None,
    **settings: Any,
) -> DataLoop:
    """Train a toy on datasets from where its records stand to its target; returns it as it ended."""
    options: dict[str, Any] = {"target_step": 11, "data": corpora.data}
    toy = loop(DataSettings(**options | settings))
    toy.prepare(corpora)
    recorder = RunRecorder(run_dir)
    with mortal(recorder):
        parent = recorder.latest_checkpoint() if start in ("resume", "auto") else None
        if parent is not None:
            toy.restore(parent)
        plan = plan_of(toy, start=start, parent=parent)
        recorder.start(
            dataclasses.replace(plan, cursor=toy.cursor, data=corpora.identity), capture=toy.capture
        )
        train(recorder, toy, before)
    return toy


def on_dataset(run_dir: Path) -> None:
    """Reads a real dataset over several epochs; it lies beside the run."""
    run_on(run_dir, one_source(run_dir, TEXTS))


def on_duplicates(run_dir: Path) -> None:
    """Reads a dataset whose documents are all the same: batches recur, honestly."""
    run_on(run_dir, one_source(run_dir, DUPLICATES))


def shuffled(run_dir: Path) -> None:
    """Reads in groups of two shards, in another order in every epoch."""
    run_on(run_dir, one_source(run_dir, TEXTS, shuffle={"group_shards": 2, "seed": 3}))


def packed(run_dir: Path) -> None:
    """Leaves the first token of each document out of the loss."""
    run_on(run_dir, one_source(run_dir, TEXTS, packing="documents"))


def mixed(run_dir: Path) -> None:
    """Reads two sources, one of them shuffled like the other, for several epochs of each."""
    run_on(run_dir, two_sources(run_dir, shuffle={"group_shards": 2, "seed": 3}), target_step=20)


READING = {make.__name__: make for make in (on_dataset, on_duplicates, shuffled, packed, mixed)}
