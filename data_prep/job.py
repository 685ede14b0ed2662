"""The inputs of one preparation: identified before anything is read, and again at the end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from data_prep.config import GivenTokenizer, HubTokenizer, PreparationConfig
from data_prep.existing import MAX_TOKENIZER_BYTES
from data_prep.hub import fetch, pin
from data_prep.manifest import GivenFile, Plan, build_plan
from data_prep.progress import Progress
from data_prep.sources.document import Source
from data_prep.sources.opening import open_source
from data_prep.split import Splitter
from data_prep.wording import listed
from ledger.dataset.manifest import TOKENIZER_NAME
from ledger.errors import RefusedError
from ledger.records.dataset import DatasetSource, SourceFile
from ledger.storage.files import read_regular_file, real_path
from ledger.storage.filesystem import FileSystem

__all__ = ["Job", "local_files", "open_job", "require_unchanged"]


@dataclass(frozen=True)
class Job:
    """One preparation's inputs and helpers."""

    config: PreparationConfig
    source: Source
    held_out: Source | None
    """A source of its own for validation, if one is given."""
    plan: Plan
    splitter: Splitter | None
    """What splits validation off the source; null where it has a source of its own."""
    progress: Progress
    fs: FileSystem


def open_job(config: PreparationConfig, *, progress: Progress, fs: FileSystem) -> Job:
    """Find and identify everything that a configuration names; raises what `pipeline.prepare` raises for inputs."""
    source = open_source(config.source)
    held_out = None if config.validation_source is None else open_source(config.validation_source)
    given = _read_given(config, fs=fs)
    progress.stage("identify the source", unit="B")
    plan = build_plan(
        config,
        source=source.identify(progress=progress.advance),
        validation_source=None if held_out is None else held_out.identify(progress=progress.advance),
        given=given,
    )
    rule = plan.preparation.split
    splitter = Splitter(key=rule.key, validation_fraction=rule.validation_fraction)
    return Job(config, source, held_out, plan, None if held_out else splitter, progress, fs)


def local_files(config: PreparationConfig) -> dict[str, list[tuple[str, Path]]]:
    """Return name and path of every local file that a preparation reads, by the key that names it; none is read.

    Raises:
        ConfigError, EvidenceMissingError: as `open_source`.
    """
    found = {"source": open_source(config.source).local_files()}
    if config.validation_source is not None:
        found["validation_source"] = open_source(config.validation_source).local_files()
    if isinstance(config.tokenizer, GivenTokenizer):
        found["tokenizer"] = [(TOKENIZER_NAME, Path(config.tokenizer.path))]
    return found


def require_unchanged(job: Job) -> None:
    """Identify the inputs again, and compare what was read in between: it is then what the manifest names.

    Raises:
        RefusedError: one of them changed, be it for a while.
    """
    job.progress.stage("check that the source did not change", unit="B")
    changed = _changed(job.source, job.plan.source, progress=job.progress)
    if job.held_out is not None and job.plan.validation_source is not None:
        changed += _changed(job.held_out, job.plan.validation_source, progress=job.progress)
    if changed:
        problem = f"the input changed while it was being prepared: {listed(changed)}"
        raise RefusedError(problem, advice="let nothing write to it, then prepare again")


def _read_given(config: PreparationConfig, *, fs: FileSystem) -> GivenFile | None:
    tokenizer = config.tokenizer
    if isinstance(tokenizer, GivenTokenizer):
        path = real_path(tokenizer.path)
        return GivenFile(read_regular_file(path, max_bytes=MAX_TOKENIZER_BYTES, fs=fs))
    if not isinstance(tokenizer, HubTokenizer):
        return None
    repository = pin("model", tokenizer.id, revision=tokenizer.revision)
    ((_, path),) = fetch(repository, patterns=[TOKENIZER_NAME])
    data = read_regular_file(real_path(path), max_bytes=MAX_TOKENIZER_BYTES, fs=fs)
    return GivenFile(data, tokenizer.id, tokenizer.revision, repository.commit)


def _changed(source: Source, before: DatasetSource, *, progress: Progress) -> list[str]:
    after = source.identify(progress=progress.advance)
    if before == after:
        return source.misread(after)
    pairs = list(zip_longest(before.files, after.files))
    return [_name(old) or _name(new) for old, new in pairs if old != new] or ["its revision"]


def _name(file: SourceFile | None) -> str:
    return "" if file is None else file.name
