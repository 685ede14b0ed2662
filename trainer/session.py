"""One training session from its command to its end: fresh, resumed or restarted, never silently either.

Everything is restored before the first batch is drawn. What may be continued is decided here and, again, by the
recorder.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ledger.checkpoints import CompleteCheckpoint, read_checkpoint
from ledger.errors import EvidenceMissingError, RefusedError, UsageError
from ledger.pilot.comparing import environment_differences
from ledger.recorder import RunRecorder, SessionPlan
from ledger.recorder.branching import read_parent
from ledger.records.documents import Recipe
from ledger.records.events import SessionStatus
from ledger.records.layout import LOG
from ledger.records.locks import RecipeLock
from ledger.records.parts import BranchMode, ModelSummary, Start
from ledger.storage.filesystem import OS
from trainer.checkpoint import restore_checkpoint, restore_weights
from trainer.config import TrainerConfig
from trainer.data import TrainingData
from trainer.environment import environment_record, prepare_machine
from trainer.locking import require_every_byte, require_lock
from trainer.loop import Training, fit
from trainer.milestones import Calendar, calendar_of
from trainer.model.decoder import parameter_counts
from trainer.optim import partition_summary
from trainer.profiling import Profiling
from trainer.recipe import branch_config, complete_config, config_of, continue_config, fix_end, recipe_of
from trainer.report import Report, arithmetic
from trainer.signals import StopRequest
from trainer.sources import VALIDATION_SPLIT, DataSources, open_sources
from trainer.state import TrainingState, build_state

__all__ = ["Branch", "Request", "run_session"]


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Where a new run begins that branches from another one."""

    folder: Path
    """The other run's checkpoint."""
    mode: BranchMode


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for on the command line."""

    config: TrainerConfig
    run_dir: Path
    resume: str | None = None
    """`auto`, `latest`, the folder of a checkpoint, or None."""
    restart: bool = False
    branch: Branch | None = None
    argv: tuple[str, ...] = ()
    allow_network_fs: bool = False
    """Write although the run lies on a network file system."""
    lock: RecipeLock | None = None
    """What the run must equal, as it was read."""
    lock_path: Path | None = None
    """Where that lies, for messages."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Where the session begins: how that was chosen, and the checkpoint, if any."""

    start: Start
    parent: CompleteCheckpoint | None = None
    mode: BranchMode | None = None
    """How a checkpoint of another run is taken over; None: the parent is of this run."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The effective recipe, what is due when, and what is read."""

    config: TrainerConfig
    calendar: Calendar
    sources: DataSources
    data: TrainingData


def run_session(request: Request, *, console: Console, stop: StopRequest) -> SessionStatus | None:
    """Train one session and return how it ended; None where the run was complete already and nothing was written.

    Raises:
        UsageError: the folder holds a run and nothing says what to do with it, or the request contradicts itself.
        RefusedError: the recipe or the data are not those of the run.
        EvidenceMissingError: there is no dataset, or no checkpoint to resume from.
        LockedError: another process trains in this folder.
    """
    _validate(request)
    sources = _open_sources(request)
    typed = complete_config(request.config, sources.main, mix=sources.sources)
    _require_validation(typed, sources)
    if is_new := not OS.exists(request.run_dir / LOG):
        _require_lock(request, typed, sources, recorded=None)  # before even a folder is made
        _require_bytes(request, sources, Report(console, interval=typed.logging.interval))
    prepare_machine(typed)
    recorder = RunRecorder(request.run_dir, allow_network_fs=request.allow_network_fs)
    with closing(TrainingData(sources, typed)) as data, recorder:
        recorded = recorder.recipe_in_force()
        _require_lock(request, typed, sources, recorded=recorded)
        choice = _choose(request, recorder)
        config = _effective_config(typed, choice, recorded, run=request.run_dir)
        calendar = calendar_of(config)
        report = Report(console, interval=config.logging.interval)
        if _is_done(request, recorder, choice, config):
            report.say(
                f"{request.run_dir}: the run is complete at step {config.target_step:,}; nothing to do, nothing "
                "written (raise run.target_step to go on)"
            )
            return None
        if not is_new and (choice.parent is None or not recorder.has_sessions):
            _require_bytes(request, sources, report)
        inputs = Inputs(config=config, calendar=calendar, sources=sources, data=data)
        training = _begin(request, choice, inputs, recorder=recorder, report=report, stop=stop)
        showing = report.showing(config.run.name, step=recorder.step, target=recorder.target_step)
        with showing, closing(training.profiling):
            return fit(training)


def _require_bytes(request: Request, sources: DataSources, report: Report) -> None:
    """Read all data before the first update under a lock."""
    if request.lock is not None:
        report.say("verifying every byte of the data")
        require_every_byte(sources)


def _validate(request: Request) -> None:
    if request.resume == "":
        raise UsageError("--resume is empty", expected="auto, latest, or the folder of a checkpoint")
    if request.restart and request.resume is not None:
        raise UsageError("--resume and --restart contradict each other", advice="choose one of them")


def _open_sources(request: Request) -> DataSources:
    try:
        return open_sources(request.config.data)
    except EvidenceMissingError as error:
        if request.resume is None and not request.restart:
            raise
        raise EvidenceMissingError(
            error.problem,
            path=error.path,
            place=error.place,
            expected=error.expected,
            advice="if the dataset was moved, say where it lies now: --set data.path=DIR",
        ) from error


def _require_validation(config: TrainerConfig, sources: DataSources) -> None:
    if config.evaluation.enabled and not sources.has_validation:
        raise EvidenceMissingError(
            f"the dataset has no split {VALIDATION_SPLIT!r} to evaluate on",
            path=sources.main.directory,
            advice="prepare one (validation_fraction), or say evaluation.enabled=false",
        )


def _require_lock(
    request: Request, typed: TrainerConfig, sources: DataSources, *, recorded: Recipe | None
) -> None:
    if request.lock is not None:
        config = fix_end(typed, recorded=None if recorded is None else config_of(recorded))
        require_lock(request.lock, config, sources, path=request.lock_path or request.run_dir)


def _effective_config(
    typed: TrainerConfig, choice: Choice, recorded: Recipe | None, *, run: Path
) -> TrainerConfig:
    """Return what was typed, completed by what the run, or the run that it continues, fixed before."""
    if recorded is not None:
        return continue_config(recorded, typed, run=run)
    if choice.mode == "continue" and choice.parent is not None:
        return branch_config(read_parent(choice.parent).recipe, typed, parent_folder=choice.parent.folder)
    return fix_end(typed)


def _choose(request: Request, recorder: RunRecorder) -> Choice:
    """Decide where the session begins; a folder that holds a run needs a word on what to do with it."""
    if not recorder.has_sessions and request.branch is not None and request.resume in (None, "auto"):
        return _at_branch("branch", request.branch)
    if not recorder.has_sessions:
        if request.resume not in (None, "auto"):
            raise UsageError("there is no run to resume", path=request.run_dir, advice="leave --resume out")
        return Choice(start="fresh")
    _require_same_branch(request.branch, recorder)
    if request.restart:
        return _at_beginning("restart", request, recorder)
    if request.resume == "auto":
        latest = recorder.latest_checkpoint()
        return (
            _at_beginning("auto", request, recorder)
            if latest is None
            else Choice(start="auto", parent=latest)
        )
    if request.resume is not None:
        return Choice(start="resume", parent=_checkpoint_to_resume(request.resume, recorder))
    raise UsageError(
        "the folder holds a run already",
        path=request.run_dir,
        expected="a word on what to do with it",
        advice="type --resume auto to go on, --restart to begin again from step 0 in the same folder (what was done "
        "stays on record), or another --run",
    )


def _require_same_branch(typed: Branch | None, recorder: RunRecorder) -> None:
    """Make sure that a branch that is typed again is the one that the run began with."""
    if typed is None:
        return
    began = recorder.run_parent
    if began is None:
        raise UsageError(
            "the folder holds a run of its own, which is no branch",
            path=recorder.run_dir,
            advice="leave --branch out, or choose another --run",
        )
    if typed.mode != began.mode:
        raise RefusedError(
            f"the run began by --mode {began.mode}",
            path=recorder.run_dir,
            expected=f"the same, not {typed.mode}",
        )
    if OS.exists(typed.folder) and read_checkpoint(typed.folder).manifest_sha256 != began.manifest_sha256:
        raise RefusedError(
            "is not the checkpoint that the run began with",
            path=typed.folder,
            expected=f"the one of run {began.run} with manifest {began.manifest_sha256}",
        )


def _at_beginning(start: Start, request: Request, recorder: RunRecorder) -> Choice:
    """Begin where the run began: from nothing, or at the checkpoint of another run, which must then be at hand."""
    if recorder.run_parent is None or (start == "auto" and recorder.is_completed):
        return Choice(start=start)
    if request.branch is None:
        raise EvidenceMissingError(
            "the run holds no checkpoint to go on from and began at one of another run",
            path=recorder.run_dir,
            expected=f"the checkpoint of run {recorder.run_parent.run}",
            advice=f"say where it lies: --branch DIR --mode {recorder.run_parent.mode}",
        )
    return _at_branch(start, request.branch)


def _at_branch(start: Start, branch: Branch) -> Choice:
    return Choice(start=start, parent=read_checkpoint(branch.folder), mode=branch.mode)


def _checkpoint_to_resume(wanted: str, recorder: RunRecorder) -> CompleteCheckpoint:
    if wanted != "latest":
        return recorder.checkpoint_named(Path(wanted))
    latest = recorder.latest_checkpoint()
    if latest is None:
        raise EvidenceMissingError(
            "the run holds no checkpoint on its current branch",
            path=recorder.run_dir,
            advice="type --resume auto to begin again from step 0 where there is none, or --restart",
        )
    return latest


def _is_done(request: Request, recorder: RunRecorder, choice: Choice, config: TrainerConfig) -> bool:
    """Tell whether the run is complete and this request adds nothing: no raised target, no restart, no older start."""
    if request.restart or not recorder.is_completed:
        return False
    goes_back = (
        request.resume not in (None, "auto", "latest")
        and choice.parent is not None
        and not recorder.is_at_end(choice.parent)
    )
    return config.target_step == recorder.target_in_force and not goes_back


def _begin(
    request: Request,
    choice: Choice,
    inputs: Inputs,
    *,
    recorder: RunRecorder,
    report: Report,
    stop: StopRequest,
) -> Training:
    """Build the state, put everything where the choice says, and only then start the session."""
    config, data = inputs.config, inputs.data
    state = build_state(config)
    if choice.parent is not None and choice.mode == "initialise":
        restore_weights(choice.parent, state)
    elif choice.parent is not None:
        data.restore(restore_checkpoint(choice.parent, state).cursor)
    stop.refuse_to_begin()
    plan = _plan(request, choice, inputs, state)
    recorder.start(plan, capture=state.capture)
    data.begin_verification()
    report.say(f"session {recorder.session} of {recorder.run_dir}: {choice.start}, {_spell(choice)}")
    if request.lock is not None:
        for difference in environment_differences(request.lock, plan.environment):
            report.say(f"warning: not what the pilots ran on: {difference}")
    report.say(
        arithmetic(
            config,
            start_step=recorder.step,
            tokens_per_epoch=data.tokens_per_epoch,
            parameters=sum(plan.model.parameters.values()),
        )
    )
    return Training(
        config=config,
        dataset=inputs.sources.main,
        data=data,
        state=state,
        recorder=recorder,
        report=report,
        stop=stop,
        profiling=Profiling(config.profiler, request.run_dir),
        calendar=inputs.calendar,
    )


def _spell(choice: Choice) -> str:
    if choice.parent is None:
        return "from the beginning"
    return f"from {choice.parent.path}" if choice.mode is None else f"{choice.mode} {choice.parent.folder}"


def _plan(request: Request, choice: Choice, inputs: Inputs, state: TrainingState) -> SessionPlan:
    config, sources = inputs.config, inputs.sources
    return SessionPlan(
        recipe=recipe_of(config),
        environment=environment_record(config),
        data=sources.identities,
        tokens_per_microbatch=config.batch.tokens_per_microbatch,
        cursor=inputs.data.cursor,
        name=config.run.name,
        purpose=config.run.purpose,
        model=ModelSummary(parameters=parameter_counts(state.model)),
        optimizer=partition_summary(state.groups),
        start=choice.start,
        parent=choice.parent,
        mode=choice.mode,
        recipe_lock=request.lock,
        argv=request.argv,
    )
