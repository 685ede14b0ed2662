"""`reconcile`: every rule over all sessions of a run, in one pass over its log."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
from ledger.audit.heads import QuotedHead
from ledger.audit.live_digests import LiveDigestChecker
from ledger.audit.locking import LockChecker
from ledger.audit.movement import MovementChecker
from ledger.audit.optimizer_steps import OptimizerStepChecker
from ledger.audit.parameters import ParameterChecker
from ledger.audit.passing import audit_stream, counter_checkers, form_checkers, open_stream, outcome
from ledger.audit.positions import CursorChecker, EpochLengths, PositionChecker
from ledger.audit.recipe import AmendmentChecker, EnvironmentChecker, NamedFileChecker
from ledger.audit.recurrence import RecurrenceChecker
from ledger.audit.redone import RedoneChecker
from ledger.audit.rules import RULES
from ledger.audit.run_document import RunDocumentChecker
from ledger.audit.sealing import SealChecker
from ledger.audit.sessions import GeometryChecker, ParentChecker, SessionChecker, StartChecker
from ledger.audit.strays import StrayChecker
from ledger.audit.stream import Checker, Stream
from ledger.audit.subject import find_run
from ledger.audit.waivers import spell
from ledger.records.documents import Verdict
from ledger.records.fields import Json

__all__ = ["reconcile"]


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
