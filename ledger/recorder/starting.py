"""May this session start, and what does its first line say? Everything is checked before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ledger.checkpoints import CompleteCheckpoint, read_trainer_state
from ledger.errors import RefusedError, UsageError, VerificationError
from ledger.recipes import TARGET_FIELD, LeafDifference, lock_differences, recipe_differences
from ledger.recorder.branching import check_branch, read_parent, require_no_branch, run_parent
from ledger.recorder.opening import OpenedRun, read_recipe
from ledger.recorder.plan import LiveState, SessionPlan
from ledger.records.documents import Recipe, TrainerState
from ledger.records.fields import FIRST_DATA_CHAIN
from ledger.records.layout import RECIPE_LOCK
from ledger.records.locks import RecipeLock
from ledger.records.parts import ZERO, Counters, Cursor, Parent, Position, RunFacts, StateDigests
from ledger.records.sections import RecipeSections, parse_sections
from ledger.storage.documents import document_sha256, read_document
from ledger.storage.filesystem import FileSystem

__all__ = ["Beginning", "prepare_beginning"]


MAX_WINDOW_MICROBATCHES = 40_000
"""Each takes 19 bytes of a line of at most 1 MiB; the rest is left for skipped attempts and diagnostics."""


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """Where a session stands before its first microbatch."""

    session: int
    sections: RecipeSections
    target_step: int
    accumulation: int
    counters: Counters
    cursor: Cursor
    data_chain: str
    consecutive_skips: int
    parent: Parent | None
    state: StateDigests
    loss_scale: tuple[float | None, int | None]
    amendments: list[LeafDifference]
    facts: RunFacts | None
    """Only in the first session."""


def prepare_beginning(opened: OpenedRun, plan: SessionPlan, live: LiveState, *, fs: FileSystem) -> Beginning:
    """Check a plan against the run's history and return where the session begins.

    Raises:
        UsageError: the plan makes no sense for this run (a fresh start where sessions exist, a parent not of this
            run, a recipe without a target).
        RefusedError: identity, data or geometry differ from the run's, or the target was lowered.
        VerificationError: the live objects are not in the state that the checkpoint holds.
    """
    sections = _sections(plan.recipe)
    target = _target(sections)
    accumulation = sections.batch.accumulation if sections.batch else 1
    _check_window(sections, accumulation)
    _check_choice(opened, plan)
    _check_data(opened, plan, accumulation)
    amendments = _amendments(opened, plan, target, fs=fs)
    _check_lock(opened, plan, amendments if plan.mode is None else [], fs=fs)
    restored = _restored(plan, target, fs=fs)
    state = live.digests(plan.cursor)
    _check_restored(plan, restored, state)
    return Beginning(
        session=len(opened.history.sessions) + 1,
        sections=sections,
        target_step=target,
        accumulation=accumulation,
        counters=ZERO if restored is None else restored.counters,
        cursor=plan.cursor,
        data_chain=FIRST_DATA_CHAIN if restored is None else restored.data_chain,
        consecutive_skips=0 if restored is None else restored.consecutive_skips,
        parent=_parent(plan),
        state=state,
        loss_scale=live.loss_scale,
        amendments=amendments,
        facts=None if opened.history.sessions else _facts(plan, target, accumulation, restored),
    )


def _restored(plan: SessionPlan, target: int, *, fs: FileSystem) -> TrainerState | None:
    """Return the state that the session goes on from; None where it begins at 0."""
    if plan.parent is None or plan.mode == "initialise":
        return None
    restored = read_trainer_state(plan.parent, fs=fs)
    if restored.counters.step > target:
        raise RefusedError(
            f"stands at step {restored.counters.step}, beyond the target {target}",
            path=plan.parent.folder,
            expected=f"{TARGET_FIELD} of at least {restored.counters.step}",
        )
    return restored


def _sections(recipe: Recipe) -> RecipeSections:
    try:
        return parse_sections(recipe.config)
    except ValueError as error:
        raise UsageError(f"the recipe cannot be recorded: {error}") from error


def _target(sections: RecipeSections) -> int:
    if sections.run is None:
        raise UsageError(
            "the recipe has no run.target_step", expected="the number of successful updates to reach"
        )
    return sections.run.target_step


def _check_window(sections: RecipeSections, accumulation: int) -> None:
    interval = sections.logging.interval if sections.logging else 1
    if interval * accumulation > MAX_WINDOW_MICROBATCHES:
        raise UsageError(
            f"a train event would list {interval * accumulation:,} microbatches "
            f"(logging.interval {interval:,} × {accumulation:,})",
            expected=f"at most {MAX_WINDOW_MICROBATCHES:,}, which one line of the log can hold",
            advice="log more often",
        )


def _check_choice(opened: OpenedRun, plan: SessionPlan) -> None:
    if plan.mode is not None:
        check_branch(opened, plan, mode=plan.mode)
    elif not opened.history.sessions:
        if plan.start != "fresh" or plan.parent is not None:
            raise UsageError(f"a run without sessions cannot start as {plan.start!r}", expected="'fresh'")
    else:
        _check_later_start(opened, plan)


def _check_later_start(opened: OpenedRun, plan: SessionPlan) -> None:
    if plan.start in ("fresh", "branch"):
        raise UsageError(
            f"already holds a run with {len(opened.history.sessions)} session(s)",
            path=opened.folder,
            expected="a new folder for a fresh start",
            advice="resume it, or choose another folder",
        )
    if plan.start == "restart" and plan.parent is not None:
        raise UsageError("a restart begins at the run's start and takes no checkpoint")
    if plan.start == "resume" and plan.parent is None:
        raise UsageError("a resume needs a checkpoint", advice="choose start 'auto' or 'restart'")
    if plan.start == "auto":
        _check_automatic(opened, plan.parent)
    if plan.parent is not None:
        _check_own_parent(opened, plan.parent)
    else:
        require_no_branch(opened)


def _check_automatic(opened: OpenedRun, parent: CompleteCheckpoint | None) -> None:
    latest = opened.latest()
    if latest is not None and parent is None:
        raise UsageError("'auto' begins at the run's start only where the current branch holds no checkpoint")
    if latest is not None and parent is not None and parent.path != latest.path:
        raise UsageError(
            f"'auto' takes the latest checkpoint, not {parent.path}",
            expected=latest.path,
            advice="choose start 'resume' for another checkpoint",
        )


def _check_own_parent(opened: OpenedRun, parent: CompleteCheckpoint) -> None:
    if parent.manifest.run_id != opened.history.run_id:
        raise UsageError(
            f"is a checkpoint of run {parent.manifest.run_id}",
            path=parent.folder,
            expected=f"one of run {opened.history.run_id}",
        )
    if parent not in opened.checkpoints:
        raise UsageError(
            "is no checkpoint that this recorder found in the run",
            path=parent.folder,
            expected="what `latest_checkpoint` or `checkpoint_named` returned",
        )
    opened.require_recorded(parent)


def _check_data(opened: OpenedRun, plan: SessionPlan, accumulation: int) -> None:
    if not opened.history.sessions:
        return
    first = opened.history.sessions[0].start
    wanted = {
        "data.train": (first.data.train, plan.data.train),
        "data.validation": (first.data.validation, plan.data.validation),
        "data_parallel": (first.data_parallel, plan.data_parallel),
        "tokens_per_microbatch": (first.tokens_per_microbatch, plan.tokens_per_microbatch),
        "accumulation": (first.accumulation, accumulation),
    }
    differing = [f"{name}: {old} -> {new}" for name, (old, new) in wanted.items() if old != new]
    if differing:
        raise RefusedError(
            f"the run was started with other data or another geometry: {'; '.join(differing)}",
            path=opened.folder,
            expected="what the run started with",
            advice="start a new run in another folder",
        )


def _amendments(opened: OpenedRun, plan: SessionPlan, target: int, *, fs: FileSystem) -> list[LeafDifference]:
    """Return the differences to the parent's recipe that the session states, after refusing those that may not be."""
    sessions, inherited = opened.history.sessions, None
    if plan.mode == "continue" and plan.parent is not None:
        inherited = read_parent(plan.parent, fs=fs).recipe
        _refuse_identity(recipe_differences(inherited, plan.recipe), opened.folder, is_branch=True)
    if sessions:
        is_own = plan.parent is not None and plan.mode is None
        sha256 = (
            plan.parent.manifest.recipe_sha256 if is_own and plan.parent else sessions[0].start.recipe_sha256
        )
        before = read_recipe(opened.folder, sha256, fs=fs)
        _refuse_identity(recipe_differences(before, plan.recipe), opened.folder)
        inherited = inherited or before
    _refuse_lower_target(opened, target)
    if inherited is None:
        return []
    return [found for found in recipe_differences(inherited, plan.recipe) if found.leaf_class != "volatile"]


def _refuse_identity(differences: list[LeafDifference], folder: Path, *, is_branch: bool = False) -> None:
    identity = [
        found
        for found in differences
        if found.leaf_class == "identity" and not (is_branch and found.is_of_schedule)
    ]
    if identity:
        raise RefusedError(
            f"{len(identity)} setting(s) that define the experiment differ: {'; '.join(map(str, identity))}",
            path=folder,
            expected="the recipe of the run that it continues, but for its schedule"
            if is_branch
            else "the recipe that the run was started with",
            advice="set them back, or start a new run in another folder",
        )


def _refuse_lower_target(opened: OpenedRun, target: int) -> None:
    in_force = opened.history.target_step()
    if in_force is not None and target < in_force:
        raise RefusedError(
            f"{TARGET_FIELD} would fall from {in_force} to {target}",
            path=opened.folder,
            expected=f"at least {in_force}: a target may only be raised",
        )


def _check_lock(
    opened: OpenedRun, plan: SessionPlan, amendments: list[LeafDifference], *, fs: FileSystem
) -> None:
    """Insist that the plan is what the run's lock says, where it has one, and amends nothing."""
    lock = plan.recipe_lock
    if opened.history.facts is not None:
        named = opened.history.facts.recipe_lock_sha256
        if lock is not None and document_sha256(lock) != named:
            raise RefusedError(
                "the run was not started under this lock",
                path=opened.folder,
                advice="start a new run under it",
            )
        if named is not None:
            lock = read_document(opened.folder / RECIPE_LOCK, RecipeLock, sha256=named, fs=fs)
    if lock is None:
        return
    found = [str(difference) for difference in lock_differences(lock, plan.recipe)]
    found += [str(difference) for difference in amendments if str(difference) not in found]
    if plan.data != lock.data:
        found.append(f"data: {lock.data} -> {plan.data}")
    if found:
        raise RefusedError(
            f"{len(found)} setting(s) differ from the lock's (locked -> typed): {'; '.join(found)}",
            path=opened.folder / RECIPE_LOCK,
            expected="the recipe as it was frozen",
            advice="set them back, or freeze the changed recipe into a new lock",
        )


def _check_restored(plan: SessionPlan, restored: TrainerState | None, state: StateDigests) -> None:
    if restored is None:
        _check_cursor_at_beginning(plan)
    if plan.parent is None:
        return
    recorded = plan.parent.manifest.state
    parts = StateDigests.__struct_fields__ if restored is not None else ("model",)
    differing = [name for name in parts if getattr(recorded, name) != getattr(state, name)]
    if differing:
        raise VerificationError(
            f"the live state after restoring differs from the checkpoint's in: {', '.join(differing)}",
            path=plan.parent.folder,
            expected="every part restored before the session starts",
            advice="restore weights, optimizer, schedule, cursor, generators, scaler and guards first",
        )


def _check_cursor_at_beginning(plan: SessionPlan) -> None:
    moved = [source for source, position in plan.cursor.items() if position != Position(0, 0)]
    if moved:
        raise UsageError(
            f"data was drawn before the session started ({', '.join(sorted(moved))})",
            expected="a cursor at epoch 0, offset 0 where no checkpoint was restored",
        )


def _parent(plan: SessionPlan) -> Parent | None:
    if plan.parent is None:
        return None
    manifest = plan.parent.manifest
    return Parent(
        run=manifest.run_id,
        session=manifest.session,
        step=manifest.counters.step,
        checkpoint=plan.parent.path,
        manifest_sha256=plan.parent.manifest_sha256,
    )


def _facts(plan: SessionPlan, target: int, accumulation: int, restored: TrainerState | None) -> RunFacts:
    updates = target - (0 if restored is None else restored.counters.step)
    return RunFacts(
        name=plan.name,
        purpose=plan.purpose,
        parent=run_parent(plan),
        recipe_lock_sha256=None if plan.recipe_lock is None else document_sha256(plan.recipe_lock),
        model=plan.model,
        optimizer=list(plan.optimizer),
        target_step=target,
        planned_tokens=updates * plan.tokens_per_microbatch * accumulation,
    )
