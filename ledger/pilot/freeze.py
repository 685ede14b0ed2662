"""A passed pilot becomes the lock of the long run: what was rehearsed, on what, by what, and what is not held still."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from ledger import __version__
from ledger.dataset.manifest import Dataset
from ledger.errors import EvidenceMissingError, RefusedError, UnsafeError, UsageError
from ledger.locks import SAME_RECIPE_STAGES, is_mutable_revision, lock_problems, read_lock, signed
from ledger.pilot.datasets import pilot_data
from ledger.pilot.gates import asks_less
from ledger.pilot.recheck import CheckedRun, CheckedStage, check_stages, read_pilot
from ledger.pilot.rehearsal import RATED_STAGE, Rehearsal, rehearsal_of
from ledger.recipes import CHECKPOINT_SECTION, TARGET_FIELD, identity_leaves, leaf_class, leaf_values
from ledger.records.dataset import DatasetSource
from ledger.records.documents import Environment, LeafClass, Recipe
from ledger.records.fields import Json
from ledger.records.locks import LockedDataset, LockedPilot, LockedSource, RecipeLock, ReplacedLock
from ledger.records.pilot import PilotRecord
from ledger.storage.atomic import replace_file
from ledger.storage.canonical import sha256_hex
from ledger.storage.clock import Clock, SystemClock
from ledger.storage.documents import document_bytes, document_sha256, write_document
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["freeze_pilot", "replaced_lock", "write_lock"]

NEVER_PINNED: Final = (
    "drivers and firmware of the hardware; the same model of a processor or accelerator may differ",
    "packages: they are named by version, not by the digest of their files",
    "the operating system beyond its name and kernel",
)
"""What no lock holds still."""


def freeze_pilot(
    root: Path,
    *,
    per_day: float,
    replaces: ReplacedLock | None = None,
    clock: Clock | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> RecipeLock:
    """Verify every stage of a passed pilot again and return the lock that rests on it. Nothing is written.

    Args:
        root: the pilot's folder.
        per_day: interruptions a day of wall clock that the budget reckons with.
        replaces: the lock that this one takes the place of, and why.
        clock: says when.
        report: told the name of each stage that is being verified.

    Raises:
        EvidenceMissingError: the pilot is not finished, or holds no run of the long run's recipe.
        RefusedError: it did not pass, or rehearsed another recipe than the one that it names.
        VerificationError: something changed since it ran.
        UnsafeError: something in it is a secret, which a lock would hand on.
    """
    pilot = read_pilot(root)
    data = pilot_data(root, pilot)
    stages = check_stages(root, pilot, data=data, report=report)
    rehearsal = rehearsal_of(_rated(root, stages).folder, data=data)
    _require_own_recipe(root, pilot, stages, rehearsal)
    lock = signed(
        _lock(
            pilot,
            stages,
            rehearsal,
            paths=data.paths,
            per_day=per_day,
            replaces=replaces,
            clock=clock or SystemClock(),
        )
    )
    for problem in lock_problems(lock):
        error = UnsafeError if problem.kind == "unsafe" else RefusedError
        raise error(f"no lock can be made of it: {problem.text}", path=root)
    return lock


def _lock(
    pilot: PilotRecord,
    stages: list[CheckedStage],
    rehearsal: Rehearsal,
    *,
    paths: Mapping[str, Json],
    per_day: float,
    replaces: ReplacedLock | None,
    clock: Clock,
) -> RecipeLock:
    recipe, environment = Recipe(config=pilot.config, classes=pilot.classes), rehearsal.environment
    return RecipeLock(
        tool_version=__version__,
        created=clock.now(),
        identity=identity_leaves(recipe),
        identity_sha256=pilot.identity_sha256,
        operational=_free_leaves(recipe, "operational"),
        volatile={**_free_leaves(recipe, "volatile"), **paths},
        checkpoint=recipe.config.get(CHECKPOINT_SECTION),
        target_step=pilot.target_step,
        tokens_per_update=pilot.tokens_per_update,
        planned_tokens=pilot.planned_tokens,
        data=rehearsal.data,
        datasets={name: _locked_dataset(dataset) for name, dataset in rehearsal.datasets.items()},
        model=dict(rehearsal.facts.model.parameters),
        optimizer=list(rehearsal.facts.optimizer),
        parts=dict(pilot.parts),
        code=environment.code,
        packages=environment.packages,
        environment={
            name: getattr(environment, name) for name in ("python", "platform", "hardware", "settings")
        },
        unpinned=[*_not_asked(stages), *_unpinned(environment, rehearsal.datasets)],
        pilots=[_locked_pilot(stage, run) for stage in stages for run in stage.runs],
        budget=rehearsal.budget(pilot.config, per_day=per_day),
        replaces=replaces,
    )


def _rated(root: Path, stages: list[CheckedStage]) -> CheckedRun:
    for stage in stages:
        if stage.name == RATED_STAGE and stage.runs:
            return stage.runs[0]
    raise EvidenceMissingError(
        f"the pilot holds no run of the stage {RATED_STAGE}, which runs the long run's own recipe",
        path=root,
        advice="run the pilot with that stage",
    )


def _require_own_recipe(
    root: Path, pilot: PilotRecord, stages: list[CheckedStage], rehearsal: Rehearsal
) -> None:
    """Insist that what was rehearsed is the recipe that is locked, on the data that is locked."""
    recipe = Recipe(config=pilot.config, classes=pilot.classes)
    problems = [
        f"the run {run.record.path} of {stage.name} has the identity {run.record.identity_sha256}"
        for stage in stages
        if stage.name in SAME_RECIPE_STAGES
        for run in stage.runs
        if run.record.identity_sha256 != pilot.identity_sha256
    ]
    if leaf_values(recipe).get(TARGET_FIELD) != pilot.target_step:
        problems.append("its target is not the one of its configuration")
    if rehearsal.data != pilot.data:
        problems.append(f"{RATED_STAGE} read other data than the pilot names")
    if problems:
        raise RefusedError(
            "; ".join(problems),
            path=root,
            expected=f"the long run's recipe, {pilot.identity_sha256}, in {' and '.join(sorted(SAME_RECIPE_STAGES))}",
            advice="run the pilot again under the configuration that is to be locked",
        )


def _free_leaves(recipe: Recipe, kind: LeafClass) -> dict[str, Json]:
    return {
        path: value
        for path, value in leaf_values(recipe).items()
        if leaf_class(recipe, path) == kind
        and path != TARGET_FIELD
        and path.partition(".")[0] != CHECKPOINT_SECTION
    }


def _locked_dataset(dataset: Dataset) -> LockedDataset:
    manifest = dataset.manifest
    sources = [_locked_source("train", manifest.source)]
    if manifest.validation_source is not None:
        sources.append(_locked_source("validation", manifest.validation_source))
    tokenizer = manifest.tokenizer
    sources.append(
        LockedSource(role="tokenizer", id=tokenizer.id, revision=_pinned(tokenizer.resolved_revision))
    )
    return LockedDataset(
        metadata_sha256=dataset.metadata_sha256,
        tokenizer_sha256=tokenizer.sha256,
        vocabulary=tokenizer.vocabulary,
        tokens={name: split.tokens for name, split in manifest.splits.items()},
        sources=sources,
    )


def _locked_source(role: str, source: DatasetSource) -> LockedSource:
    return LockedSource(role=role, id=source.id, revision=_pinned(source.resolved_revision))


def _pinned(revision: str | None) -> str | None:
    return None if revision is None or is_mutable_revision(revision) else revision


def _locked_pilot(stage: CheckedStage, run: CheckedRun) -> LockedPilot:
    return LockedPilot(
        stage=stage.name,
        path=str(run.folder.resolve()),
        run_id=run.record.run_id,
        identity_sha256=run.record.identity_sha256,
        log_head=run.record.log_head,
        verdict=run.record.verdict,
        verdict_sha256=run.record.verdict_sha256,
    )


def _not_asked(stages: list[CheckedStage]) -> Iterator[str]:
    """Say which gates the configuration switched off, and of which it asks less than is asked by default."""
    for stage in stages:
        gates = stage.record.gates
        if off := [gate.metric for gate in gates if not gate.gated]:
            yield f"what was not asked of {stage.name}: {', '.join(off)}, switched off in its configuration"
        if less := [f"{gate.metric} {gate.asked}" for gate in gates if asks_less(stage.name, gate)]:
            yield f"what was asked of {stage.name} is less than by default: {', '.join(less)}"


def _unpinned(environment: Environment, datasets: Mapping[str, Dataset]) -> Iterator[str]:
    """Yield what the lock cannot hold still, in words."""
    code = environment.code
    if code.get("commit") is None:
        yield "the code: it lies in no checkout, so nothing but the packages' versions says which it was"
    elif code.get("dirty"):
        digest = code.get("diff_sha256") or "of untracked files alone"
        yield (
            f"the code: it had changes that were not committed (difference {digest}); commit {code['commit']} alone "
            "does not have them"
        )
    for name, dataset in datasets.items():
        for source in _locked_dataset(dataset).sources:
            if source.revision is None:
                yield (
                    f"the origin of {source.role} in dataset {name} ({source.id}): without an immutable revision the "
                    "prepared bytes are held, and how to get them again is not"
                )
    yield from NEVER_PINNED


def replaced_lock(path: Path, *, reason: str) -> ReplacedLock:
    """Return how a new lock names the one that it takes the place of.

    Raises:
        UsageError: no reason is given.
        LedgerError: what `ledger.locks.read_lock` raises.
    """
    if not reason.strip():
        raise UsageError("--replaces without a reason", expected="--reason TEXT: why the recipe was changed")
    return ReplacedLock(sha256=document_sha256(read_lock(path)), reason=reason)


def write_lock(lock: RecipeLock, path: Path, *, over: Path | None = None, fs: FileSystem = OS) -> str:
    """Write a lock and return the digest of its file. A file that is there stays, unless it is the lock it replaces.

    Raises:
        RefusedError: another file is there.
        StorageError: the system refused.
    """
    if not fs.exists(path):
        return write_document(path, lock, replace=False, fs=fs)
    is_the_old_one = over is not None and path.resolve() == over.resolve()
    if (
        not is_the_old_one
        or lock.replaces is None
        or document_sha256(read_lock(path, fs=fs)) != lock.replaces.sha256
    ):
        raise RefusedError(
            "there is a file already, and a lock is never overwritten",
            path=path,
            expected="a path that does not exist",
            advice="an approved change is a new lock that names the old one: --replaces OLD --reason TEXT",
        )
    data = document_bytes(lock)
    replace_file(path, data, fs=fs)
    return sha256_hex(data)
