"""Prepares a dataset, or verifies and reuses the one that is there.

Everything is written into a temporary folder beside the target and renamed when it is complete: under the final name
there is a whole dataset or none. A preparation that was killed leaves complete shards in that folder, and the next
one goes on behind them. An existing dataset is never changed: with the same configuration it is rehashed and used, with
another one it is refused.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from data_prep.config import PreparationConfig
from data_prep.engines.base import WorkerDiedError
from data_prep.existing import is_occupied, verify_existing
from data_prep.job import Job, open_job, require_unchanged
from data_prep.journal import JOURNAL_NAME, has_shards
from data_prep.progress import Progress, Quiet
from data_prep.run import run_plan
from data_prep.workspace import Workspace, open_workspace
from ledger.dataset.blocks import block_digests
from ledger.dataset.manifest import METADATA_NAME, NOTES_NAME, TOKENIZER_NAME, listed_files
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    LedgerError,
    StorageError,
    UsageError,
    VerificationError,
)
from ledger.records.dataset import DatasetManifest, PreparationNotes
from ledger.storage.atomic import create_file
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.documents import document_bytes, document_sha256, write_document
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.mounts import refuse_network_file_system

__all__ = ["PreparedDataset", "prepare"]

_RESUMABLE: Final = (KeyboardInterrupt, SystemExit, MemoryError, StorageError, WorkerDiedError)
"""What may end a preparation without making its complete shards useless."""

_PACKAGES: Final = ("huggingface_hub", "numpy", "pilot-ledger", "pyarrow", "ray", "tiktoken", "tokenizers")


@dataclass(frozen=True)
class PreparedDataset:
    """A dataset that is complete and whose bytes are known."""

    directory: Path
    manifest: DatasetManifest
    metadata_sha256: str
    outcome: Literal["prepared", "reused"]
    """Whether it was made now, or was there and verified."""


def prepare(
    config: PreparationConfig,
    *,
    output: str | os.PathLike[str],
    progress: Progress | None = None,
    allow_network_fs: bool = False,
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
        UnsafeError: `output` lies on a network file system and nobody asked for writing there.
        StorageError: the system refuses.
        WorkerDiedError: a process that tokenized was killed.
    """
    if not os.fspath(output):
        raise UsageError("an empty path is given for the dataset", advice="check --output")
    target = Path(os.path.abspath(output))  # noqa: PTH100 - `resolve` would follow a link and prepare elsewhere
    clock = clock or SystemClock()
    job = open_job(config, progress=progress or Quiet(), fs=fs)
    if is_occupied(target, fs=fs):
        verified = verify_existing(target, plan=job.plan, progress=job.progress)
        return PreparedDataset(target, verified.manifest, verified.metadata_sha256, "reused")
    refuse_network_file_system(target, is_allowed=allow_network_fs)
    started, begin = clock.now(), clock.monotonic()
    with open_workspace(target, fs=fs) as workspace, _keeping_shards(workspace, fs=fs):
        with _blaming_changes(job):
            outcome = run_plan(workspace.directory, job=job)
        require_unchanged(job)
        notes = PreparationNotes(
            metadata_sha256=document_sha256(outcome.manifest),
            config=config.model_dump(mode="json"),
            started=started,
            seconds=clock.monotonic() - begin,
            python=f"{platform.python_implementation()} {platform.python_version()}",
            packages=_packages(),
            engine=config.engine,
            workers=config.workers,
            backend=outcome.backend,
            backend_reason=outcome.backend_reason,
            resumed_shards=outcome.resumed_shards,
            blocks=_blocks(workspace.directory, manifest=outcome.manifest),
        )
        write_document(workspace.directory / NOTES_NAME, notes, replace=False, fs=fs)
        create_file(workspace.directory / METADATA_NAME, document_bytes(outcome.manifest), fs=fs)
        fs.unlink(workspace.directory / JOURNAL_NAME)
        workspace.publish()
    return PreparedDataset(target, outcome.manifest, notes.metadata_sha256, "prepared")


@contextmanager
def _keeping_shards(workspace: Workspace, *, fs: FileSystem) -> Iterator[None]:
    """Keep complete shards, this preparation's or those it took over, for the next one after an interruption."""
    try:
        yield
    except _RESUMABLE:
        workspace.is_worth_keeping = has_shards(workspace.directory, fs=fs)
        raise


@contextmanager
def _blaming_changes(job: Job) -> Iterator[None]:
    """Where the text cannot be used or runs out, and an input is no longer what it was, say that instead."""
    try:
        yield
    except (EvidenceMissingError, InvalidDocumentError, VerificationError) as error:
        try:
            require_unchanged(job)
        except LedgerError as change:
            raise change from error
        raise


def _blocks(directory: Path, *, manifest: DatasetManifest) -> dict[str, list[str]]:
    """Return the digests of the blocks of every array file, read back from where they lie."""
    names = [name for name in listed_files(manifest) if name != TOKENIZER_NAME]
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        digests = pool.map(lambda name: block_digests(directory / name), names)
        return dict(zip(names, digests, strict=True))


def _packages() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions
