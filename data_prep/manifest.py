"""What a configuration makes of a source, in the words of the manifest, and how two preparations differ.

Everything that decides a dataset's bytes and is known before a token exists stands in a `Plan`; the manifest repeats
it. So a dataset can be compared with a configuration without trusting any file but the manifest itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from data_prep.config import PreparationConfig, TrainedTokenizer
from data_prep.sink import LeftOut
from data_prep.tokenizer import Tokenizer
from ledger.errors import ConfigError
from ledger.records.dataset import (
    DatasetManifest,
    DatasetSource,
    DatasetTokenizer,
    LengthRule,
    PreparationPlan,
    ShuffleRule,
    SplitInventory,
    SplitRule,
    TokenizerTraining,
)
from ledger.records.fields import MAX_INTEGER
from ledger.storage.canonical import digest_of, sha256_hex

__all__ = ["ALGORITHM", "TRAINED_ID", "GivenFile", "Plan", "build_manifest", "build_plan", "differences"]

ALGORITHM: Final = 2
"""Version of the whole procedure; raise it with any change that gives other bytes for the same plan."""

TRAINED_ID: Final = "byte-level-bpe"


@dataclass(frozen=True)
class GivenFile:
    """A tokenizer.json that was not trained here."""

    data: bytes
    id: str = "file"
    requested_revision: str | None = None
    resolved_revision: str | None = None


@dataclass(frozen=True)
class Plan:
    """What decides a dataset's bytes, known before the first token."""

    source: DatasetSource
    preparation: PreparationPlan
    training: TokenizerTraining | None
    eos_token: str
    given: GivenFile | None
    """The given tokenizer.json; null where one is trained."""
    validation_source: DatasetSource | None = None

    @property
    def sha256(self) -> str:
        """Digest of everything in it."""
        return digest_of(self.facts())

    def facts(self) -> dict[str, Any]:
        """Return the plan as the parts of a manifest that it decides."""
        tokenizer = {"training": self.training and self.training.model_dump(), "eos_token": self.eos_token}
        if self.given is not None:
            tokenizer |= {
                "id": self.given.id,
                "requested_revision": self.given.requested_revision,
                "resolved_revision": self.given.resolved_revision,
                "sha256": sha256_hex(self.given.data),
            }
        held_out = self.validation_source
        return {
            "source": self.source.model_dump(),
            "validation_source": None if held_out is None else held_out.model_dump(),
            "tokenizer": tokenizer,
            "preparation": self.preparation.model_dump(),
        }


def build_plan(
    config: PreparationConfig,
    *,
    source: DatasetSource,
    given: GivenFile | None,
    validation_source: DatasetSource | None = None,
) -> Plan:
    """Return the plan that a configuration and its inputs make; `given` is the tokenizer.json that it names."""
    return Plan(
        source=source,
        validation_source=validation_source,
        preparation=PreparationPlan(
            algorithm=ALGORITHM,
            shuffle=ShuffleRule(
                seed=config.shuffle.seed,
                buffer=config.shuffle.buffer,
                buffer_bytes=config.shuffle.buffer_bytes,
            ),
            split=_split_rule(config),
            train_tokens=_train_tokens(config),
            validation_tokens=_validation_tokens(config),
            if_short=config.if_short,
            shard_tokens=config.shard_tokens,
            length=LengthRule(
                max_bytes=config.limits.max_bytes,
                max_tokens=config.limits.max_tokens,
                overflow=config.limits.overflow,
            ),
            deduplicate=config.deduplicate,
        ),
        training=_training(config),
        eos_token=config.tokenizer.eos_token,
        given=given,
    )


def build_manifest(
    plan: Plan,
    *,
    tokenizer: Tokenizer,
    splits: dict[str, SplitInventory],
    left_out: Mapping[LeftOut, int],
    shared: int,
) -> DatasetManifest:
    """Return the manifest of a finished preparation."""
    given = plan.given or GivenFile(b"", TRAINED_ID)
    return DatasetManifest(
        source=plan.source,
        validation_source=plan.validation_source,
        tokenizer=DatasetTokenizer(
            id=given.id,
            requested_revision=given.requested_revision,
            resolved_revision=given.resolved_revision,
            sha256=tokenizer.sha256,
            canary_sha256=tokenizer.canary_sha256,
            vocabulary=tokenizer.vocabulary,
            eos_token=tokenizer.eos_token,
            eos_id=tokenizer.eos_id,
            training=plan.training,
        ),
        preparation=plan.preparation,
        dtype=tokenizer.dtype,
        left_out=dict(left_out.items()),
        shared=shared,
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


def _split_rule(config: PreparationConfig) -> SplitRule:
    if config.validation_source is not None:
        return SplitRule(rule="given", key=config.split.key, validation_fraction=0)
    return SplitRule(
        rule="keyed-hash", key=config.split.key, validation_fraction=config.split.validation_fraction
    )


def _train_tokens(config: PreparationConfig) -> int | None:
    """Return the bound on training: as asked for, or whole groups of shards and the last target behind them."""
    if config.train_tokens is None or config.group_shards is None:
        return config.train_tokens
    group = config.group_shards * config.shard_tokens
    return _countable(-(-config.train_tokens // group) * group + 1, because="rounded up to whole groups")


def _validation_tokens(config: PreparationConfig) -> int | None:
    """Return the bound on validation: as asked for, else in proportion to the training tokens."""
    is_given = config.validation_source is not None
    if config.validation_tokens is not None or config.train_tokens is None or is_given:
        return config.validation_tokens
    fraction = config.split.validation_fraction
    tokens = math.ceil(config.train_tokens * fraction / (1 - fraction)) or None
    return tokens and _countable(tokens, because="with validation tokens in proportion")


def _countable(tokens: int, *, because: str) -> int:
    if tokens > MAX_INTEGER:
        problem = f"train_tokens, {because}, asks for {tokens} tokens"
        raise ConfigError(problem, place="train_tokens", expected=f"at most {MAX_INTEGER}")
    return tokens


def _training(config: PreparationConfig) -> TokenizerTraining | None:
    tokenizer = config.tokenizer
    if not isinstance(tokenizer, TrainedTokenizer):
        return None
    return TokenizerTraining(
        algorithm=TRAINED_ID, vocabulary=tokenizer.vocabulary, sample_bytes=tokenizer.sample_bytes
    )
