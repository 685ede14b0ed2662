"""What state a run's files are in: what a repair could put right, or the damage that it must not touch. Only reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ledger.errors import EvidenceMissingError, InvalidDocumentError, RefusedError, VerificationError
from ledger.history import History
from ledger.maintain.temporaries import find_temporaries
from ledger.recorder.opening import OpenedRun, open_run
from ledger.records.documents import RunDocument
from ledger.records.layout import LOG, RUN, SEAL
from ledger.storage.documents import document_sha256, load_document
from ledger.storage.filesystem import FileSystem
from ledger.storage.log import LogTail

__all__ = ["Condition", "Rebuild", "examine"]

_RESTORE = (
    "nothing was changed; restore the log from a copy, or find out which of the two belongs to this run"
)


@dataclass(frozen=True, kw_only=True)
class Rebuild:
    """run.json must be written anew: why, as what, and whether something stands there that is kept aside first."""

    problem: str
    document: RunDocument
    replaces: bool


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What a repair of a run would put right."""

    run_id: str | None
    tail: LogTail | None
    run_document: Rebuild | None
    temporaries: list[str]

    @property
    def is_sound(self) -> bool:
        """Whether there is nothing to repair."""
        return self.tail is None and self.run_document is None and not self.temporaries


def examine(run_dir: Path, *, fs: FileSystem) -> Condition:
    """Read a run to the end of its log and return what can be repaired.

    Raises:
        VerificationError, InvalidDocumentError, EvidenceMissingError: it is damaged in a way that no repair undoes.
        RefusedError: the run is sealed and would have to be changed.
        NewerVersionError: a newer version of the ledger wrote it.
        UsageError: the folder holds other things than a run.
        UnsafeError, StorageError: as reading says.
    """
    opened = open_run(run_dir, trusts_run_document=False, fs=fs)
    opened.latest()  # refuses one that vanished: nothing brings it back
    condition = Condition(
        run_id=opened.history.run_id,
        tail=opened.tail,
        run_document=_judge_run_document(opened, fs=fs),
        temporaries=find_temporaries(run_dir, fs=fs),
    )
    if fs.exists(run_dir / SEAL) and not condition.is_sound:
        raise RefusedError(
            "the run is sealed: it was declared done, and nothing in it is changed",
            path=run_dir,
            expected="the files that the seal names",
            advice="restore the run from a copy that matches its seal",
        )
    return condition


def _judge_run_document(opened: OpenedRun, *, fs: FileSystem) -> Rebuild | None:
    """Compare run.json with the one that the log yields."""
    path = opened.folder / RUN
    derived = opened.history.run_document()
    if not fs.exists(path):
        if derived is None:
            return None
        return Rebuild(problem="is absent", document=derived, replaces=False)
    try:
        found = load_document(path, RunDocument, fs=fs)
    except InvalidDocumentError as error:
        if derived is None:
            raise
        return Rebuild(problem=f"cannot be read: {error.problem}", document=derived, replaces=True)
    _require_known_sessions(found.document, opened.history, path)
    if derived is None or found.sha256 == document_sha256(derived):
        return None
    listed, known = len(found.document.sessions), len(derived.sessions)
    problem = f"lists {listed} of {known} sessions" if listed < known else "differs from what the log says"
    return Rebuild(problem=problem, document=derived, replaces=True)


def _require_known_sessions(document: RunDocument, history: History, path: Path) -> None:
    """Make sure that run.json pins nothing which the log does not hold: that would be a log which lost lines."""
    if history.run_id is not None and document.run_id != history.run_id:
        raise VerificationError(
            f"belongs to run {document.run_id}, but the log to run {history.run_id}",
            path=path,
            advice=_RESTORE,
        )
    known = {session.number: (session.start.session_id, session.position) for session in history.sessions}
    for listed in document.sessions:
        if listed.session not in known:
            raise EvidenceMissingError(
                f"the log holds no session {listed.session}, which run.json lists: part of the log is lost",
                path=path.with_name(LOG),
                advice="nothing was changed; restore the log from a copy",
            )
        if known[listed.session] != (listed.session_id, listed.log):
            raise VerificationError(
                f"lists another session {listed.session} than the log holds", path=path, advice=_RESTORE
            )
