"""`reconcile`: every rule over all sessions of a run, in one pass over its log."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ledger import __version__
from ledger.audit.account import account_of, status_of
from ledger.audit.batches import BatchChecker
from ledger.audit.checkpoints import CheckpointChecker
from ledger.audit.claims import ClaimChecker
from ledger.audit.completion import CompletionChecker
from ledger.audit.control import ControlChecker
from ledger.audit.corpus import Corpus, require_dataset
from ledger.audit.data import DataChecker
from ledger.audit.ends import EndChecker
from ledger.audit.evaluations import EvaluationRecordChecker
from ledger.audit.exports import ExportChecker
from ledger.audit.files import RunFiles
from ledger.audit.findings import Findings
from ledger.audit.form import FormChecker, PinChecker
from ledger.audit.heads import QuotedHead
from ledger.audit.live_digests import LiveDigestChecker
from ledger.audit.locking import LockChecker
from ledger.audit.measures import EvaluationChecker, FiniteChecker, LossTokenChecker, RateChecker
from ledger.audit.movement import MovementChecker
from ledger.audit.optimizer_steps import OptimizerStepChecker
from ledger.audit.parameters import ParameterChecker
from ledger.audit.positions import CursorChecker, EpochLengths, PositionChecker
from ledger.audit.recipe import AmendmentChecker, EnvironmentChecker, NamedFileChecker
from ledger.audit.recurrence import RecurrenceChecker
from ledger.audit.redone import RedoneChecker
from ledger.audit.replay import CounterChecker, SkipChecker, WindowChecker
from ledger.audit.rules import RULES
from ledger.audit.run_document import RunDocumentChecker
from ledger.audit.scaling import ScalerChecker
from ledger.audit.sealing import SealChecker
from ledger.audit.sessions import GeometryChecker, ParentChecker, SessionChecker, StartChecker
from ledger.audit.strays import StrayChecker
from ledger.audit.stream import Checker, Stream, read_through
from ledger.audit.subject import find_run
from ledger.audit.timing import TimingChecker
from ledger.audit.waivers import find_waivers, spell
from ledger.errors import NewerVersionError
from ledger.records.documents import Verdict
from ledger.records.fields import Json
from ledger.records.layout import LOG
from ledger.storage.filesystem import OS
from ledger.storage.lock import LockState, lock_state

__all__ = ["Outcome", "audit_stream", "open_stream", "outcome", "reconcile", "refuse_newer"]

Outcome = Literal["passed", "failed", "incomplete"]


def reconcile(
    run_dir: str | os.PathLike[str],
    *,
    control: str | os.PathLike[str] | None = None,
    rehash: bool = False,
    data: str | os.PathLike[str] | None = None,
    quoted: QuotedHead | None = None,
    progress: Callable[[int], object] | None = None,
    also: Callable[[Stream], Checker] | None = None,
) -> Verdict:
    """Check every rule over all sessions of a run and return what may honestly be said of it.

    Nothing is written. `control` is an uninterrupted run of the same recipe to compare with (LG8); `rehash` reads
    every byte of checkpoints and dataset; `data` is where the dataset lies if not where the recipe says; `quoted` is
    what somebody noted of this run, which must still hold (LG105, LG705). `progress` is told, from several threads, of
    the bytes that are hashed. `also` makes one more checker, which the same pass over the log feeds.

    Raises:
        UsageError, InvalidDocumentError: the path is not a run, or `data` no dataset.
        EvidenceMissingError: the folder is empty.
        NewerVersionError: a newer version of the ledger wrote it.
        UnsafeError: something that is no regular file stands in the place of a record.
        StorageError: the system refused to read.
    """
    folder, corpus = find_run(run_dir), None if data is None else require_dataset(data)
    stream, lock = open_stream(folder, progress=progress)
    other = None if control is None else _control_stream(control)
    checkers = _Checkers.of(stream, control=other, rehash=rehash, data=corpus, quoted=quoted)
    audit_stream(stream, [*checkers.all, *([] if also is None else [also(stream)])])
    status, evidence = status_of(stream, lock, is_complete=checkers.completion.is_complete)
    account = account_of(stream) | {
        "status_evidence": evidence,
        "coverage": checkers.positions.coverage,
        "mix": checkers.positions.mix,
        "redone_places_compared": checkers.redone.compared,
        "equivalence": checkers.control.verdicts,
        "verified_checkpoints": sorted(checkers.checkpoints.verified),
        "verified_while_training": checkers.data.verified_while_training,
        "final_checkpoint": None if checkers.completion.final is None else checkers.completion.final.path,
        "seal": checkers.seal.account,
    }
    return _verdict(stream, checkers.all, status=status, account=account)


@dataclass(frozen=True, kw_only=True)
class _Checkers:
    """All checkers of a run, in the order in which they look at an event."""

    all: list[Checker]
    data: DataChecker
    completion: CompletionChecker
    positions: PositionChecker
    redone: RedoneChecker
    control: ControlChecker
    checkpoints: CheckpointChecker
    seal: SealChecker

    @classmethod
    def of(
        cls,
        stream: Stream,
        *,
        control: Stream | None,
        rehash: bool,
        data: Path | None,
        quoted: QuotedHead | None,
    ) -> _Checkers:
        """Make them."""
        corpus = Corpus(data)
        epochs = EpochLengths(stream, corpus)
        positions = PositionChecker(stream, epochs=epochs)
        of_data = DataChecker(stream, corpus=corpus, rehash=rehash)
        checkpoints = CheckpointChecker(stream, rehash=rehash)
        evaluations = EvaluationRecordChecker(stream, corpus=corpus)
        completion = CompletionChecker(stream, evaluations=evaluations)
        redone = RedoneChecker(stream)
        against = ControlChecker(stream, control=control)
        seal = SealChecker(stream, rehash=rehash, quoted=quoted)
        return cls(
            all=[
                *form_checkers(stream, quoted=quoted),
                RunDocumentChecker(stream),
                of_data,
                *counter_checkers(stream),
                CursorChecker(stream, epochs=epochs),
                positions,
                RecurrenceChecker(stream, epochs=epochs, corpus=corpus),
                BatchChecker(stream, corpus=corpus, rehash=rehash),
                ParentChecker(stream),
                StartChecker(stream),
                SessionChecker(stream),
                EndChecker(stream),
                GeometryChecker(stream),
                redone,
                checkpoints,
                OptimizerStepChecker(stream),
                ParameterChecker(stream),
                LiveDigestChecker(stream),
                MovementChecker(stream),
                StrayChecker(stream),
                NamedFileChecker(stream),
                ExportChecker(stream, rehash=rehash),
                AmendmentChecker(stream),
                EnvironmentChecker(stream),
                LockChecker(stream),
                evaluations,
                completion,
                seal,
                against,
                ClaimChecker(stream),
            ],
            data=of_data,
            completion=completion,
            positions=positions,
            redone=redone,
            control=against,
            checkpoints=checkpoints,
            seal=seal,
        )


def form_checkers(stream: Stream, *, quoted: QuotedHead | None = None) -> list[Checker]:
    """Return the checkers of LG1 that need nothing but the log and what pins it."""
    return [FormChecker(stream), PinChecker(stream, quoted=quoted)]


def counter_checkers(stream: Stream) -> list[Checker]:
    """Return the checkers of LG2 that need nothing but the log and the recipes."""
    return [
        CounterChecker(stream),
        WindowChecker(stream),
        SkipChecker(stream),
        FiniteChecker(stream),
        RateChecker(stream),
        ScalerChecker(stream),
        EvaluationChecker(stream),
        LossTokenChecker(stream),
        TimingChecker(stream),
    ]


def open_stream(
    run_dir: Path, *, progress: Callable[[int], object] | None = None
) -> tuple[Stream, LockState]:
    """Return a stream over a run, its log not yet read, and whether a writer holds it."""
    lock = lock_state(run_dir)
    files = RunFiles(run_dir)
    files.take_listing()
    has_log = OS.exists(run_dir / LOG)
    waivers = find_waivers(files)
    findings = Findings(waivers=waivers.in_force)
    for waiver, reason in waivers.refused.items():
        findings.skip(waiver, f"{reason}; it waives nothing")
    is_live = lock.state == "held"
    stream = Stream(files=files, findings=findings, has_log=has_log, is_live=is_live, progress=progress)
    return stream, lock


def audit_stream(stream: Stream, checkers: list[Checker]) -> None:
    """Feed the log to the checkers and let them conclude.

    Raises:
        NewerVersionError: a session was written by a newer version; the lines before it were read.
    """
    if stream.has_log:
        read_through(stream, checkers)
    for path, _ in stream.captured:
        stream.files.look_again(path)
    # A writer may have begun since; one that has ended since was at work while the log was read.
    stream.is_live = stream.is_live or lock_state(stream.files.run_dir).state == "held"
    refuse_newer(stream)
    for checker in checkers:
        checker.finish()


def refuse_newer(stream: Stream) -> None:
    """Refuse a run of which a newer version wrote a session.

    Raises:
        NewerVersionError: what was read so far holds such a session.
    """
    if stream.newer is None:
        return
    line, found = stream.newer
    raise NewerVersionError(
        f"a session was written in log version {found}",
        path=stream.files.run_dir / LOG,
        place=f"line {line}",
        advice="audit it with a newer version of the ledger",
    )


def _control_stream(control: str | os.PathLike[str]) -> Stream:
    stream, _ = open_stream(find_run(control))
    audit_stream(stream, [*form_checkers(stream), *counter_checkers(stream)])
    return stream


def _verdict(stream: Stream, checkers: list[Checker], *, status: str, account: dict[str, Json]) -> Verdict:
    findings, history = stream.findings, stream.history
    _note_anchor(stream)
    for waiver in findings.unused_waivers:
        findings.skip(spell(waiver), "there is no such finding (any more): the waiver waives nothing")
    not_checked = findings.not_checked
    rules = {rule for checker in checkers for rule in checker.rules} & RULES.keys()
    has_sessions = bool(history.sessions)
    return Verdict(
        tool_version=__version__,
        run_id=history.run_id,
        log_head=stream.head,
        verdict=outcome(findings, is_live=stream.is_live),
        status=status,
        checked=sorted(rules - not_checked.keys() - findings.not_applicable.keys()),
        not_checked=dict(sorted(not_checked.items())),
        not_applicable=dict(sorted(findings.not_applicable.items())),
        branch=history.branch_counters() if has_sessions else None,
        spent=history.spent() if has_sessions else None,
        account=account,
        findings=findings.kept,
        finding_counts=findings.counts,
        rule_counts=findings.rule_counts,
        waived=findings.waived,
    )


def _note_anchor(stream: Stream) -> None:
    """Say how far the log is pinned: lines behind the last pin could be cut off unnoticed."""
    files, head = stream.files, stream.head
    pins = [session.log.seq for session in (files.run.document.sessions if files.run.document else [])]
    pins += [
        folder.manifest.document.log.seq
        for folder in files.complete_checkpoints.values()
        if folder.manifest.document is not None
    ]
    pins += [] if files.seal.document is None else [files.seal.document.log.seq]
    last = max(pins, default=-1)
    if head is not None and head.seq > last:
        stream.findings.skip(
            "log beyond its last anchor", f"nothing pins the lines after seq {last}, up to seq {head.seq}"
        )


def outcome(findings: Findings, *, is_live: bool) -> Outcome:
    """Return the verdict that findings amount to."""
    if findings.count("error"):
        return "failed"
    return "incomplete" if findings.count("missing") or is_live else "passed"
