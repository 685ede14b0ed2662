"""A dataset of a few hundred tokens and a model of a few thousand parameters, so that whole runs take milliseconds."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ledger.dataset.npy import write_array
from ledger.records.dataset import (
    DatasetManifest,
    DatasetSource,
    DatasetTokenizer,
    EndsFile,
    PreparationPlan,
    ShardEntry,
    ShuffleRule,
    SplitInventory,
    SplitRule,
)
from ledger.records.events import SessionStatus
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import write_document
from trainer.config import TrainerConfig
from trainer.session import Branch, Request, run_session
from trainer.signals import StopRequest

VOCABULARY = 64
EOS = 0
TOKENIZER = b'{"version":"1.0"}'


def write_dataset(
    folder: Path, *, train_tokens: int = 331, validation_tokens: int = 150, seed: int = 1
) -> Path:
    """Write a dataset of random token ids; 331 train tokens are five microbatches of 2 x 32, with a tail."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(seed)
    splits = {
        name: _write_split(folder, name, generator.integers(1, VOCABULARY, tokens).astype("<u2"))
        for name, tokens in (("train", train_tokens), ("validation", validation_tokens))
        if tokens
    }
    (folder / "tokenizer.json").write_bytes(TOKENIZER)
    write_document(folder / "metadata.json", _manifest(splits), replace=False)
    return folder


def tiny_config(data: Path, /, **sections: dict[str, Any]) -> TrainerConfig:
    """Return a configuration of width 32, one layer and sequences of 16, with sections overridden key by key."""
    values: dict[str, dict[str, Any]] = {
        "run": {"name": "tiny", "purpose": "smoke", "target_step": 8, "seed": 7},
        "data": {"path": str(data)},
        "batch": {"micro_batch": 2, "sequence": 16, "accumulation": 1},
        "model": {"width": 32, "layers": 1, "heads": 4, "kv_heads": 2, "hidden": 48},
        "optimizer": {"learning_rate": 3e-3},
        "schedule": {"name": "cosine", "warmup_steps": 3, "min_lr_ratio": 0.1},
        "logging": {"interval": 1, "evidence": True},
        "evaluation": {"batches": 2, "micro_batch": 2},
        "checkpoint": {"policy": "final"},
    }
    for name, changes in sections.items():
        before = values.get(name, {})
        is_another_kind = changes.get("name", before.get("name")) != before.get("name")
        values[name] = changes if is_another_kind and name != "run" else before | changes
    return TrainerConfig.model_validate(values)


class StopAfter(StopRequest):
    """Asks to stop, as SIGTERM does, once so many attempts were made."""

    def __init__(self, *, attempts: int) -> None:
        super().__init__()
        self._left = attempts + 1  # the loop looks before each attempt

    @property
    def is_made(self) -> bool:
        self._left -= 1
        if self._left == 0:
            self.make(signal.SIGTERM)
        return super().is_made


def train(
    config: TrainerConfig,
    run_dir: Path,
    *,
    resume: str | None = None,
    restart: bool = False,
    branch: Branch | None = None,
    stop: StopRequest | None = None,
) -> SessionStatus | None:
    """Train one session in this process, as the command line would."""
    request = Request(
        config=config, run_dir=run_dir, resume=resume, restart=restart, branch=branch, argv=("test",)
    )
    return run_session(request, console=Console(quiet=True, stderr=True), stop=stop or StopRequest())


def _write_split(folder: Path, name: str, tokens: np.ndarray) -> SplitInventory:
    middle = tokens.size // 2
    tokens[[middle - 1, -1]] = EOS
    parts = (tokens[:middle], tokens[middle:])
    shards = [
        _write_shard(
            folder, f"{name}-{index:05d}", part, end=(index + 1) * middle if index == 0 else tokens.size
        )
        for index, part in enumerate(parts)
    ]
    return SplitInventory(documents=2, tokens=int(tokens.size), bytes=int(tokens.size), shards=shards)


def _write_shard(folder: Path, name: str, tokens: np.ndarray, *, end: int) -> ShardEntry:
    size, digest = write_array(folder / f"{name}.npy", tokens, dtype="uint16")
    _, ends_digest = write_array(folder / f"{name}.ends.npy", np.array([end], dtype="<u8"), dtype="uint64")
    return ShardEntry(
        file=f"{name}.npy",
        tokens=int(tokens.size),
        documents=1,
        bytes=size,
        sha256=digest,
        ends=EndsFile(file=f"{name}.ends.npy", sha256=ends_digest),
    )


def _manifest(splits: dict[str, SplitInventory]) -> DatasetManifest:
    return DatasetManifest(
        source=DatasetSource(
            kind="text", id="random", requested_revision=None, resolved_revision=None, options={}, files=[]
        ),
        tokenizer=DatasetTokenizer(
            id="none",
            requested_revision=None,
            resolved_revision=None,
            sha256=sha256_hex(TOKENIZER),
            canary_sha256=sha256_hex(b""),
            vocabulary=VOCABULARY,
            eos_token="<|endoftext|>",
            eos_id=EOS,
            training=None,
        ),
        preparation=PreparationPlan(
            algorithm=1,
            shuffle=ShuffleRule(seed=0, buffer=1),
            split=SplitRule(rule="keyed-hash", key="k", validation_fraction=0.1),
            train_tokens=None,
            validation_tokens=None,
            if_short="accept",
            shard_tokens=1024,
        ),
        dtype="uint16",
        left_out={},
        splits=splits,
    )
