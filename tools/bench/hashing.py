"""Verifying a dataset against `hashlib.sha256` over the same bytes, on one core and on all."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _measure import Contender, measure

from data_prep.shards import SplitWriter
from ledger.dataset.manifest import METADATA_NAME, TOKENIZER_NAME
from ledger.dataset.verify import verify_dataset
from ledger.records.dataset import (
    DatasetManifest,
    DatasetSource,
    DatasetTokenizer,
    PreparationPlan,
    ShuffleRule,
    SplitRule,
)
from ledger.storage.documents import document_bytes

SHARDS, SHARD_TOKENS, DOCUMENT_TOKENS = 8, 2**25, 1_024


def make_dataset(folder: Path) -> list[Path]:
    """Write a dataset of 8 shards of 64 MiB and return its array files."""
    draw = np.random.default_rng(0)
    writer = SplitWriter(folder, name="train", dtype="uint16", shard_tokens=SHARD_TOKENS)
    for _ in range(SHARDS * SHARD_TOKENS // DOCUMENT_TOKENS):
        ids = draw.integers(1, 50_000, DOCUMENT_TOKENS, dtype=np.uint16)
        ids[-1] = 0
        writer.add(ids, text_bytes=4_096)
    inventory = writer.finish()
    tokenizer = b"{}"
    (folder / TOKENIZER_NAME).write_bytes(tokenizer)
    digest = hashlib.sha256(tokenizer).hexdigest()
    manifest = DatasetManifest(
        source=DatasetSource(
            kind="text", id="text", requested_revision=None, resolved_revision=None, options={}, files=[]
        ),
        tokenizer=DatasetTokenizer(
            id="file",
            requested_revision=None,
            resolved_revision=None,
            sha256=digest,
            canary_sha256=digest,
            vocabulary=50_000,
            eos_token="<|endoftext|>",  # noqa: S106 - no secret
            eos_id=0,
            training=None,
        ),
        preparation=PreparationPlan(
            algorithm=1,
            shuffle=ShuffleRule(seed=0, buffer=1),
            split=SplitRule(rule="keyed-hash", key="k", validation_fraction=0.0),
            train_tokens=None,
            validation_tokens=None,
            if_short="error",
            shard_tokens=SHARD_TOKENS,
        ),
        dtype="uint16",
        left_out={},
        splits={"train": inventory} if inventory else {},
    )
    (folder / METADATA_NAME).write_bytes(document_bytes(manifest))
    return sorted(folder.glob("*.npy"))


def hash_plainly(path: Path) -> str:
    """Return a file's SHA-256 in the plainest fast way."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Measure and print."""
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = make_dataset(folder)
        size = sum(path.stat().st_size for path in files) / 1e9
        with ThreadPoolExecutor(cores) as pool:
            one = measure(
                {
                    "hashlib": Contender(lambda: [hash_plainly(path) for path in files], size),
                    "verify": Contender(lambda: verify_dataset(folder, workers=1), size),
                },
                rounds=5,
                unit="GB/s, 1 core",
                base="hashlib",
            )
            print()
            both = measure(
                {
                    "hashlib": Contender(lambda: list(pool.map(hash_plainly, files)), size),
                    "verify": Contender(lambda: verify_dataset(folder), size),
                },
                rounds=5,
                unit=f"GB/s, {cores} cores",
                base="hashlib",
            )
    print(f"target 0.9: {one['verify']:.2f} on one core, {both['verify']:.2f} on {cores}")


if __name__ == "__main__":
    main()
