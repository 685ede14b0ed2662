"""Fetching a batch: its share of a training step, and random windows against a bare memory map.

Everything is measured in one process, alternating, and printed as medians with the first and third quartile. The
data is random ids in shards of the usual form, made in a temporary folder; it lies in the page cache.

    python -P tools/bench/batches.py [--tokens N] [--rounds N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ledger.dataset.manifest import Split
from ledger.dataset.npy import write_array
from ledger.dataset.order import Geometry
from ledger.dataset.prefetch import PrefetchingReader
from ledger.dataset.reader import Reader
from ledger.dataset.shuffle import Shuffle
from ledger.dataset.source import Source
from ledger.records.dataset import HEADER_BYTES, ShardEntry, SplitInventory
from trainer.config import ModelConfig
from trainer.model.decoder import Decoder

VOCABULARY = 4096
SHARDS = 8
BATCHES = 50
"""Batches of one measurement."""
WINDOWS = Geometry(8, 1024)
STEP = Geometry(8, 128)
"""The batch of configs/tiny.yaml: the cheapest step that is trained in earnest, so the hardest case."""
MODEL = ModelConfig(vocabulary=VOCABULARY, width=96, layers=2, heads=4, kv_heads=2, hidden=256)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tokens", type=int, default=2**25, help="tokens of the dataset")
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each kind")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        split = write_split(Path(folder), tokens=options.tokens)
        steps = measure_steps(split, rounds=options.rounds)
        windows = measure_windows(split, rounds=options.rounds)
    console = Console()
    console.print(table("one batch of 8 x 128, microseconds", steps, against="training step"))
    console.print(
        table("one batch of 8 x 1,024 shuffled windows, microseconds", windows, against="memory map")
    )
    share = max(median(steps[name]) for name in steps if name != "training step") / median(
        steps["training step"]
    )
    speed = median(windows["memory map"]) / median(windows["groups"])
    console.print(f"share of a step: {share:.2%} (target: at most 1 %)")
    console.print(f"shuffled windows: {speed:.2f} of a bare memory map (target: at least 0.5)")
    return 0


def measure_steps(split: Split, *, rounds: int) -> dict[str, list[float]]:
    """Return microseconds a batch of each way of reading, and of a forward and backward pass with an update."""
    training = TrainingStep()
    plain = reader(split, STEP)
    packed = reader(split, STEP, packing="documents")
    shuffled = reader(split, STEP, shuffle=Shuffle(2, 0))
    ahead = PrefetchingReader(reader(split, STEP), ahead=2)
    kinds: dict[str, Callable[[], object]] = {
        "in order": plain.next,
        "in order, documents": packed.next,
        "shuffled groups": shuffled.next,
        "fetched ahead": ahead.next,
    }
    shuffled.next()  # the first group is loaded while the model is built, not in a step
    found = {name: [] for name in (*kinds, "training step")}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for name, fetch in kinds.items():
            found[name].append(each(fetch))
        found["training step"].append(each(training.run, count=3))
    ahead.close()
    return found


def measure_windows(split: Split, *, rounds: int) -> dict[str, list[float]]:
    """Return microseconds a batch of shuffled windows, loading the groups included, and of a bare memory map."""
    group_batches = split.tokens // SHARDS * 2 // WINDOWS.tokens
    maps = [np.load(split.directory / shard.file, mmap_mode="r") for shard in split.inventory.shards]
    draws = np.random.default_rng(0)

    def from_maps() -> object:
        chosen = maps[draws.integers(len(maps))]
        starts = draws.integers(0, chosen.size - WINDOWS.sequence - 1, WINDOWS.sequences)
        return np.stack([chosen[start : start + WINDOWS.sequence + 1] for start in starts])

    whole = reader(split, WINDOWS, shuffle=Shuffle(2, 0))
    source = Source(split, name="train", geometry=WINDOWS, shuffle=Shuffle(2, 0))
    slots = iter(range(0, 10**9, WINDOWS.sequences))

    def from_groups() -> object:
        epoch, slot = divmod(next(slots), source.order.microbatches_per_epoch * WINDOWS.sequences)
        return source._sequences.rows(epoch, slot=slot, count=WINDOWS.sequences)  # noqa: SLF001 - no digest, as the floor

    kinds = {"memory map": from_maps, "groups": from_groups, "groups, with digest and cursor": whole.next}
    found: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, fetch in kinds.items():
            found[name].append(each(fetch, count=group_batches))
    source.close()
    whole.close()
    return found


def each(work: Callable[[], object], *, count: int = BATCHES) -> float:
    """Return microseconds of one call, over `count` of them."""
    started = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - started) / count * 1e6


class TrainingStep:
    """Forward, backward and update of the small decoder."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self._model = Decoder(MODEL, sequence=STEP.sequence)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), fused=True)
        self._inputs = torch.randint(VOCABULARY, (STEP.micro_batch, STEP.sequence))

    def run(self) -> None:
        """Take one step."""
        logits = self._model(self._inputs)
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), self._inputs.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()


def reader(split: Split, geometry: Geometry, **options: object) -> Reader:
    """Return a reader of the split."""
    return Reader([Source(split, name="train", geometry=geometry, **options)])  # type: ignore[arg-type]


def write_split(folder: Path, *, tokens: int) -> Split:
    """Write random ids as shards, a document every 500 tokens."""
    draws = np.random.default_rng(1)
    shards = [write_shard(folder, draws, index=index, tokens=tokens // SHARDS) for index in range(SHARDS)]
    inventory = SplitInventory(
        documents=sum(shard.documents for shard in shards),
        tokens=tokens // SHARDS * SHARDS,
        bytes=0,
        shards=shards,
    )
    return Split("train", directory=folder, inventory=inventory, dtype="uint16")


def write_shard(folder: Path, draws: np.random.Generator, *, index: int, tokens: int) -> ShardEntry:
    """Write one shard with its document ends."""
    file = f"train-{index:05d}.npy"
    ids = draws.integers(0, VOCABULARY, tokens).astype("<u2")
    _, sha256 = write_array(folder / file, ids, dtype="uint16")
    ends = np.arange(500, tokens + 1, 500, dtype="<u8") + np.uint64(index * tokens)
    ends_file = f"train-{index:05d}.ends.npy"
    _, ends_sha256 = write_array(folder / ends_file, ends, dtype="uint64")
    return ShardEntry.model_validate(
        {
            "file": file,
            "tokens": tokens,
            "documents": int(ends.size),
            "bytes": HEADER_BYTES + 2 * tokens,
            "sha256": sha256,
            "ends": {"file": ends_file, "sha256": ends_sha256},
        }
    )


def table(title: str, found: dict[str, list[float]], *, against: str) -> Table:
    """Return medians with quartiles, and each as a ratio of the one called `against`."""
    result = Table(title=title)
    for heading in ("what", "median", "quartiles", f"of {against}"):
        result.add_column(heading, justify="left" if heading == "what" else "right")
    floor = median(found[against])
    for name, times in found.items():
        low, _, high = quantiles(times, n=4)
        result.add_row(
            name, f"{median(times):,.0f}", f"{low:,.0f} to {high:,.0f}", f"{median(times) / floor:.3f}"
        )
    return result


if __name__ == "__main__":
    sys.exit(main())
