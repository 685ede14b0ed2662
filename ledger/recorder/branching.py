"""Branch runs: a run that begins at a checkpoint of another one, of which it keeps manifest and recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ledger.checkpoints import MAX_MANIFEST_BYTES, CompleteCheckpoint
from ledger.errors import EvidenceMissingError, RefusedError, UsageError, VerificationError
from ledger.recorder.opening import OpenedRun
from ledger.recorder.plan import SessionPlan
from ledger.records.documents import Recipe
from ledger.records.layout import MANIFEST, PARENT, PARENT_MANIFEST, PARENT_RECIPE, RECIPES
from ledger.records.parts import BranchMode, RunParent
from ledger.storage.atomic import replace_file
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import parse_document
from ledger.storage.files import ensure_folder, read_regular_file
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.strict_json import MAX_DOCUMENT_BYTES

__all__ = ["ParentRecords", "check_branch", "read_parent", "require_no_branch", "run_parent", "store_parent"]


@dataclass(frozen=True, kw_only=True)
class ParentRecords:
    """What a branch run keeps of its parent checkpoint."""

    manifest: bytes
    recipe_bytes: bytes
    recipe: Recipe


def read_parent(checkpoint: CompleteCheckpoint, *, fs: FileSystem = OS) -> ParentRecords:
    """Read manifest and recipe of a checkpoint in the run where it lies, and check their digests.

    Raises:
        EvidenceMissingError: one is not there, for instance because the checkpoint was copied out of its run.
        VerificationError: one is not what was recorded.
        InvalidDocumentError, UnsafeError, StorageError: it cannot be read.
    """
    sha256 = checkpoint.manifest.recipe_sha256
    path = checkpoint.folder.parent.parent / RECIPES / f"{sha256}.json"
    manifest = _read(
        checkpoint.folder / MANIFEST, checkpoint.manifest_sha256, max_bytes=MAX_MANIFEST_BYTES, fs=fs
    )
    try:
        data = _read(path, sha256, max_bytes=MAX_DOCUMENT_BYTES, fs=fs)
    except EvidenceMissingError as error:
        raise EvidenceMissingError(
            "the recipe that the checkpoint was made under is not there",
            path=path,
            expected="the checkpoint inside its run",
            advice="branch from the checkpoint where the run has it",
        ) from error
    return ParentRecords(manifest=manifest, recipe_bytes=data, recipe=parse_document(data, Recipe, path=path))


def _read(path: Path, sha256: str, *, max_bytes: int, fs: FileSystem) -> bytes:
    data = read_regular_file(path, max_bytes=max_bytes, fs=fs)
    if sha256_hex(data) != sha256:
        raise VerificationError(
            f"its bytes have SHA-256 {sha256_hex(data)}",
            path=path,
            expected=sha256,
            advice="it was changed; branch from another checkpoint",
        )
    return data


def store_parent(run_dir: Path, checkpoint: CompleteCheckpoint, *, fs: FileSystem) -> None:
    """Keep manifest and recipe of the parent in a run that has no session yet; what an earlier try left is replaced."""
    records = read_parent(checkpoint, fs=fs)
    ensure_folder(run_dir / PARENT, fs=fs)
    replace_file(run_dir / PARENT_MANIFEST, records.manifest, fs=fs)
    replace_file(run_dir / PARENT_RECIPE, records.recipe_bytes, fs=fs)


def run_parent(plan: SessionPlan) -> RunParent | None:
    """Return what run.json says of the checkpoint of another run that a plan starts from."""
    if plan.mode is None or plan.parent is None:
        return None
    return RunParent(
        run=plan.parent.manifest.run_id, manifest_sha256=plan.parent.manifest_sha256, mode=plan.mode
    )


def check_branch(opened: OpenedRun, plan: SessionPlan, *, mode: BranchMode) -> None:
    """Check a start from another run's checkpoint: a new run's, or again the same one of a branch run.

    Raises:
        UsageError: the plan makes no sense for this run.
        RefusedError: the run branched from another checkpoint or in another mode, or `continue` reads other data.
    """
    if plan.parent is None:
        raise UsageError("a branch needs the checkpoint that it starts from")
    manifest, facts = plan.parent.manifest, opened.history.facts
    if mode == "continue" and manifest.data.train != plan.data.train:
        raise RefusedError(
            f"reads the data {plan.data.train}",
            path=opened.folder,
            expected=f"{manifest.data.train}, which the parent read",
            advice="take the parent's data, or its weights alone (initialise)",
        )
    if facts is None:
        if plan.start != "branch":
            raise UsageError(
                f"a run from another run's checkpoint starts as {plan.start!r}", expected="'branch'"
            )
        return
    if facts.parent != run_parent(plan):
        raise RefusedError(
            f"would start from the checkpoint {plan.parent.manifest_sha256} of run {manifest.run_id} ({mode})",
            path=opened.folder,
            expected=_spell(facts.parent),
        )
    if plan.start not in ("auto", "restart"):
        raise UsageError(
            f"the run's beginning is taken up again by {plan.start!r}", expected="'auto' or 'restart'"
        )
    if plan.start == "auto" and opened.latest() is not None:
        raise UsageError("'auto' begins at the run's start only where the current branch holds no checkpoint")


def require_no_branch(opened: OpenedRun) -> None:
    """Make sure that a run which is to begin from nothing began from nothing.

    Raises:
        EvidenceMissingError: it is a branch, so its beginning is a checkpoint of another run.
    """
    facts = opened.history.facts
    if facts is not None and facts.parent is not None:
        raise EvidenceMissingError(
            "the run begins at a checkpoint of another run, which was not restored",
            path=opened.folder,
            expected=_spell(facts.parent),
            advice="say where that checkpoint lies (--branch DIR)",
        )


def _spell(parent: RunParent | None) -> str:
    if parent is None:
        return "a run of its own, which is no branch"
    return f"the checkpoint {parent.manifest_sha256} of run {parent.run} ({parent.mode})"
