"""What a configuration makes of a source, in the words of the manifest, and how two preparations differ.

Everything that decides a dataset's bytes and is known before a token exists stands in a `Plan`; the manifest repeats
it. So a dataset can be compared with a configuration without trusting any file but the manifest itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from data_prep.config import PreparationConfig, TrainedTokenizer
from data_prep.tokenizer import Tokenizer
from ledger.records.dataset import (
    DatasetManifest,
    DatasetSource,
    DatasetTokenizer,
    PreparationPlan,
    ShuffleRule,
    SplitInventory,
    SplitRule,
    TokenizerTraining,
)
from ledger.storage.canonical import sha256_hex

__all__ = ["ALGORITHM", "TRAINED_ID", "Plan", "build_manifest", "build_plan", "differences"]

ALGORITHM: Final = 1
"""Version of the whole procedure; raise it with any change that gives other bytes for the same plan."""

TRAINED_ID: Final = "byte-level-bpe"


@dataclass(frozen=True)
class Plan:
    """What decides a dataset's bytes, known before the first token."""

    source: DatasetSource
    preparation: PreparationPlan
    training: TokenizerTraining | None
    eos_token: str
    given_sha256: str | None
    """Digest of the given tokenizer.json; null where one is trained."""

    def facts(self) -> dict[str, Any]:
        """Return the plan as the parts of a manifest that it decides."""
        tokenizer = {"training": self.training and self.training.model_dump(), "eos_token": self.eos_token}
        if self.given_sha256 is not None:
            tokenizer["sha256"] = self.given_sha256
        return {
            "source": self.source.model_dump(),
            "tokenizer": tokenizer,
            "preparation": self.preparation.model_dump(),
        }


def build_plan(config: PreparationConfig, *, source: DatasetSource, given: bytes | None) -> Plan:
    """Return the plan that a configuration and its inputs make; `given` is the tokenizer.json that it names."""
    return Plan(
        source=source,
        preparation=PreparationPlan(
            algorithm=ALGORITHM,
            shuffle=ShuffleRule(seed=config.shuffle.seed, buffer=config.shuffle.buffer),
            split=SplitRule(
                rule="keyed-hash",
                key=config.split.key,
                validation_fraction=config.split.validation_fraction,
            ),
            train_tokens=config.train_tokens,
            validation_tokens=_validation_tokens(config),
            if_short=config.if_short,
            shard_tokens=config.shard_tokens,
        ),
        training=_training(config),
        eos_token=config.tokenizer.eos_token,
        given_sha256=None if given is None else sha256_hex(given),
    )


def build_manifest(
    plan: Plan,
    *,
    tokenizer: Tokenizer,
    splits: dict[str, SplitInventory],
    empty: int,
) -> DatasetManifest:
    """Return the manifest of a finished preparation."""
    return DatasetManifest(
        source=plan.source,
        tokenizer=DatasetTokenizer(
            id=TRAINED_ID if plan.training else "file",
            requested_revision=None,
            resolved_revision=None,
            sha256=tokenizer.sha256,
            canary_sha256=tokenizer.canary_sha256,
            vocabulary=tokenizer.vocabulary,
            eos_token=tokenizer.eos_token,
            eos_id=tokenizer.eos_id,
            training=plan.training,
        ),
        preparation=plan.preparation,
        dtype=tokenizer.dtype,
        left_out={"empty": empty},
        splits=splits,
    )


def differences(manifest: DatasetManifest, *, plan: Plan) -> list[str]:
    """Return every field in which a dataset and a plan differ, with both values."""
    return list(_differences(manifest.model_dump(), plan.facts(), prefix=""))


def _differences(found: Any, wanted: Any, *, prefix: str) -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            yield from _differences(found.get(key), value, prefix=f"{prefix}.{key}" if prefix else key)
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (left, right) in enumerate(zip(found, wanted, strict=True)):
            yield from _differences(left, right, prefix=f"{prefix}[{index}]")
    elif found != wanted:
        yield f"{prefix} (there {_shown(found)}, asked for {_shown(wanted)})"


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} files"
    text = repr(value) if value is not None else "null"
    return text if len(text) <= 80 else f"{text[:77]}…"


def _validation_tokens(config: PreparationConfig) -> int | None:
    """Return the bound on validation: as asked for, else in proportion to the training tokens."""
    if config.validation_tokens is not None or config.train_tokens is None:
        return config.validation_tokens
    fraction = config.split.validation_fraction
    return math.ceil(config.train_tokens * fraction / (1 - fraction)) or None


def _training(config: PreparationConfig) -> TokenizerTraining | None:
    tokenizer = config.tokenizer
    if not isinstance(tokenizer, TrainedTokenizer):
        return None
    return TokenizerTraining(
        algorithm=TRAINED_ID, vocabulary=tokenizer.vocabulary, sample_bytes=tokenizer.sample_bytes
    )
