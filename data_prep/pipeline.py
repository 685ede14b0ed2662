"""Prepares a dataset, or verifies and reuses the one that is there.

Everything is written into a temporary folder beside the target and renamed when it is complete: under the final name
there is a whole dataset or none. An existing dataset is never changed: with the same configuration it is rehashed and
used, with another one it is refused.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final, Literal

from data_prep.config import GivenTokenizer, PreparationConfig, TrainedTokenizer
from data_prep.manifest import Plan, build_manifest, build_plan, differences
from data_prep.progress import Progress, Quiet
from data_prep.shards import SplitWriter
from data_prep.sources import Source, open_source
from data_prep.split import Splitter
from data_prep.stream import Sink, fill, training_texts
from data_prep.tokenizer import BACKEND, Tokenizer, train_byte_level_bpe
from data_prep.workspace import open_workspace
from ledger.dataset.manifest import METADATA_NAME, NOTES_NAME, TOKENIZER_NAME, read_manifest
from ledger.dataset.verify import DatasetVerification, verify_dataset
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    RefusedError,
    UnsafeError,
    UsageError,
    VerificationError,
)
from ledger.records.dataset import DatasetManifest, DatasetSource, PreparationNotes, SplitInventory
from ledger.storage.atomic import create_file
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.documents import document_bytes, document_sha256, write_document
from ledger.storage.files import read_regular_file
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["PreparedDataset", "prepare"]

_MAX_TOKENIZER_BYTES: Final = 2**30
_PACKAGES: Final = ("numpy", "pilot-ledger", "tokenizers")


@dataclass(frozen=True)
class PreparedDataset:
    """A dataset that is complete and whose bytes are known."""

    directory: Path
    manifest: DatasetManifest
    metadata_sha256: str
    outcome: Literal["prepared", "reused"]
    """Whether it was made now, or was there and verified."""


@dataclass(frozen=True)
class _Job:
    """One preparation's inputs and helpers."""

    config: PreparationConfig
    source: Source
    plan: Plan
    splitter: Splitter
    given: bytes | None
    progress: Progress
    fs: FileSystem


def prepare(
    config: PreparationConfig,
    *,
    output: str | os.PathLike[str],
    progress: Progress | None = None,
    clock: Clock | None = None,
    fs: FileSystem = OS,
) -> PreparedDataset:
    """Prepare the dataset that `config` describes at `output`, or verify and reuse it.

    Raises:
        ConfigError: the configuration contradicts its inputs.
        EvidenceMissingError: an input is missing, or runs out before the tokens asked for.
        InvalidDocumentError: a document cannot be stored; the message names it.
        RefusedError: another dataset, or something else, stands at `output`; or an input changed meanwhile.
        VerificationError: the dataset at `output` is damaged.
        LockedError: another process is preparing it.
        StorageError: the system refuses.
    """
    if not os.fspath(output):
        raise UsageError("an empty path is given for the dataset", advice="check --output")
    target = Path(os.path.abspath(output))  # noqa: PTH100 - `resolve` would follow a link and prepare elsewhere
    clock = clock or SystemClock()
    job = _open_job(config, progress=progress or Quiet(), fs=fs)
    if _is_occupied(target, fs=fs):
        with _advice_to_remove(target):
            return _reuse(target, job=job)
    started, begin = clock.now(), clock.monotonic()
    with open_workspace(target, fs=fs) as workspace:
        manifest = _write_dataset(workspace.directory, job=job)
        _require_unchanged(job)
        notes = PreparationNotes(
            metadata_sha256=document_sha256(manifest),
            config=config.model_dump(mode="json"),
            started=started,
            seconds=clock.monotonic() - begin,
            python=f"{platform.python_implementation()} {platform.python_version()}",
            packages=_packages(),
            engine="embedded",
            workers=1,
            backend=BACKEND,
        )
        write_document(workspace.directory / NOTES_NAME, notes, replace=False, fs=fs)
        create_file(workspace.directory / METADATA_NAME, document_bytes(manifest), fs=fs)
        workspace.publish()
    return PreparedDataset(target, manifest, document_sha256(manifest), "prepared")


def _open_job(config: PreparationConfig, *, progress: Progress, fs: FileSystem) -> _Job:
    source = open_source(config)
    given = None
    if isinstance(config.tokenizer, GivenTokenizer):
        path = Path(config.tokenizer.path).resolve()
        given = read_regular_file(path, max_bytes=_MAX_TOKENIZER_BYTES, fs=fs)
    progress.stage("identify the source", unit="B")
    identity = source.identify(progress=progress.advance)
    plan = build_plan(config, source=identity, given=given)
    split = plan.preparation.split
    splitter = Splitter(key=split.key, validation_fraction=split.validation_fraction)
    return _Job(config, source, plan, splitter, given, progress, fs)


def _is_occupied(target: Path, *, fs: FileSystem) -> bool:
    """Tell whether a dataset stands at the target.

    Raises:
        RefusedError: something else stands there, be it an empty folder.
    """
    if not target.parent.is_dir():
        raise EvidenceMissingError("there is no such folder to prepare a dataset in", path=target.parent)
    if not fs.exists(target):
        return False
    if not (target / METADATA_NAME).exists():
        problem = "something that is no dataset stands here; it is left alone"
        raise RefusedError(
            problem, path=target, expected="nothing, or a dataset", advice="choose another folder"
        )
    return True


@contextmanager
def _advice_to_remove(target: Path) -> Iterator[None]:
    """Add to an error what makes room for a new preparation: nothing here does that by itself."""
    try:
        yield
    except (InvalidDocumentError, VerificationError, UnsafeError, EvidenceMissingError) as error:
        error.add_note(f"nothing is rebuilt over damage; to prepare the dataset again, remove {target}")
        raise


def _reuse(target: Path, *, job: _Job) -> PreparedDataset:
    manifest = read_manifest(target)
    different = differences(manifest, plan=job.plan)
    if different:
        problem = f"another dataset stands here; it differs in {_joined(different)}"
        advice = "choose another folder, or ask for what is there"
        raise RefusedError(problem, path=target, advice=advice)
    job.progress.stage("verify the dataset", total=_stored_bytes(manifest), unit="B")
    verification = verify_dataset(target, progress=job.progress.advance)
    _require_sound(target, verification=verification)
    _require_same_ids(target, manifest=manifest)
    return PreparedDataset(target, manifest, verification.metadata_sha256, "reused")


def _require_sound(target: Path, *, verification: DatasetVerification) -> None:
    errors = verification.errors
    if not errors:
        return
    count = "one file" if len(errors) == 1 else f"{len(errors)} files"
    problem = f"{count} of this dataset cannot be trusted: {_joined([str(error) for error in errors])}"
    raise VerificationError(problem, path=target)


def _require_same_ids(target: Path, *, manifest: DatasetManifest) -> None:
    """Insist that this installation would still make the ids that are stored."""
    path = target / TOKENIZER_NAME
    data = read_regular_file(path, max_bytes=_MAX_TOKENIZER_BYTES)
    tokenizer = Tokenizer(data, eos_token=manifest.tokenizer.eos_token, path=str(path))
    found = tokenizer.canary_sha256
    if found != manifest.tokenizer.canary_sha256:
        problem = f"this installation of `{BACKEND}` makes other ids: its canary digest is {found}"
        advice = "install the version that preparation.json names"
        raise RefusedError(problem, path=path, expected=manifest.tokenizer.canary_sha256, advice=advice)


def _write_dataset(directory: Path, *, job: _Job) -> DatasetManifest:
    tokenizer = _make_tokenizer(directory, job=job)
    plan = job.plan.preparation
    job.progress.stage("tokenize", total=plan.train_tokens, unit="tokens")
    train = _sink(directory, "train", job=job, tokenizer=tokenizer, target=plan.train_tokens)
    held_out = _sink(directory, "validation", job=job, tokenizer=tokenizer, target=plan.validation_tokens)
    fill(
        job.source.documents(),
        splitter=job.splitter,
        shuffle=plan.shuffle,
        train=train,
        validation=held_out,
    )
    splits = {"train": _finish(train, name="train", job=job)}
    if plan.split.validation_fraction > 0:
        splits["validation"] = _finish(held_out, name="validation", job=job)
    return build_manifest(job.plan, tokenizer=tokenizer, splits=splits, empty=train.empty + held_out.empty)


def _make_tokenizer(directory: Path, *, job: _Job) -> Tokenizer:
    tokenizer = job.config.tokenizer
    if isinstance(tokenizer, TrainedTokenizer):
        job.progress.stage("train the tokenizer")
        texts = training_texts(
            job.source.documents(), splitter=job.splitter, sample_bytes=tokenizer.sample_bytes
        )
        data = train_byte_level_bpe(texts, vocabulary=tokenizer.vocabulary, eos_token=tokenizer.eos_token)
        path = TOKENIZER_NAME
    else:
        data, path = job.given or b"", tokenizer.path
    create_file(directory / TOKENIZER_NAME, data, fs=job.fs)
    return Tokenizer(data, eos_token=tokenizer.eos_token, path=path)


def _sink(directory: Path, name: str, *, job: _Job, tokenizer: Tokenizer, target: int | None) -> Sink:
    writer = SplitWriter(
        directory,
        name=name,
        dtype=tokenizer.dtype,
        shard_tokens=job.plan.preparation.shard_tokens,
        fs=job.fs,
    )
    return Sink(writer, tokenizer=tokenizer, target_tokens=target, advance=job.progress.advance)


def _finish(sink: Sink, *, name: str, job: _Job) -> SplitInventory:
    inventory = sink.writer.finish()
    if inventory is None:
        problem = f"no document of the source fell into {name}"
        advice = "give more text, another split.key or another split.validation_fraction"
        raise EvidenceMissingError(problem, expected="at least one document that is not empty", advice=advice)
    asked = job.config.train_tokens if name == "train" else job.config.validation_tokens
    if asked and inventory.tokens < asked and job.config.if_short == "error":
        problem = f"the source ran out after {inventory.tokens} {name} tokens"
        advice = f"give more text, lower {name}_tokens, or set if_short=accept"
        raise EvidenceMissingError(
            problem, expected=f"at least {asked}, as {name}_tokens asks", advice=advice
        )
    return inventory


def _require_unchanged(job: _Job) -> None:
    """Identify the inputs again: what was read in between is then what the manifest names."""
    job.progress.stage("check that the source did not change", unit="B")
    again = job.source.identify(progress=job.progress.advance)
    if again == job.plan.source:
        return
    changed = _changed_files(job.plan.source, again)
    problem = f"the input changed while it was being prepared: {_joined(changed)}"
    raise RefusedError(problem, advice="let nothing write to it, then prepare again")


def _changed_files(before: DatasetSource, after: DatasetSource) -> list[str]:
    pairs = zip(before.files, after.files, strict=True)
    return [old.name for old, new in pairs if old != new]


def _stored_bytes(manifest: DatasetManifest) -> int:
    return sum(shard.bytes for split in manifest.splits.values() for shard in split.shards)


def _packages() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _joined(items: Iterable[Any], *, limit: int = 5) -> str:
    texts = [str(item) for item in items]
    more = f"; and {len(texts) - limit} more" if len(texts) > limit else ""
    return "; ".join(texts[:limit]) + more
