"""Many runs at a glance: what each is, how far it came and how it stands, read from its log alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import Field

from ledger.audit.account import status_of
from ledger.audit.completion import CompletionChecker
from ledger.audit.corpus import Corpus
from ledger.audit.evaluations import EvaluationRecordChecker
from ledger.audit.passing import audit_stream, form_checkers, open_stream
from ledger.audit.subject import require_folder
from ledger.errors import LedgerError, StorageError
from ledger.records.base import Document, Record
from ledger.records.fields import Count
from ledger.records.layout import LOG, RUN
from ledger.storage.files import is_own_folder
from ledger.storage.filesystem import OS

__all__ = ["ListedRun", "Listing", "list_runs"]

DEEPEST: Final = 4
"""Folders below the one that was named in which runs are looked for."""


class ListedRun(Record):
    """One run in a line."""

    path: str = Field(description="Its folder, below the one that was named.")
    run_id: str | None
    name: str | None
    purpose: str | None
    status: str = Field(description="Derived from evidence; `unreadable` where the log cannot be followed.")
    sessions: Count
    step: Count
    target_step: Count | None
    skipped: Count
    tokens_seen: Count
    started: str | None = Field(description="Wall-clock time of its first session.")
    last: str | None = Field(description="Wall-clock time of its last event.")
    problem: str | None = Field(description="What keeps the log from being followed; null if nothing does.")


class Listing(Document):
    """What `ledger list --json` prints."""

    SCHEMA: ClassVar[str] = "ledger.listing"

    schema_name: Literal["ledger.listing"] = Field("ledger.listing", alias="schema")
    version: Literal[1] = 1
    runs: list[ListedRun]
    unreadable: dict[str, str] = Field(
        default_factory=dict,
        description="Folder below the one that was named to why it could not be looked into.",
    )


def list_runs(folder: str | os.PathLike[str]) -> Listing:
    """Return every run in a folder and in the folders below it, by path; links are not followed.

    Only the form of the log is checked (LG1): whether a run may be declared done is `reconcile`'s to say.

    Raises:
        UsageError: the path is no folder.
        StorageError: the system refused to list it.
    """
    root = Path(folder)
    require_folder(root, what="runs")
    OS.list_directory(root)
    unreadable: dict[str, str] = {}
    runs = [_listed(found, root) for found in _runs_in(root, root=root, depth=0, unreadable=unreadable)]
    return Listing(runs=runs, unreadable=unreadable)


def _runs_in(folder: Path, *, root: Path, depth: int, unreadable: dict[str, str]) -> Iterator[Path]:
    """Yield the folders of runs; one that the system does not let us look into is noted and passed over."""
    try:
        is_run = any(OS.exists(folder / name) for name in (LOG, RUN))
        names = [] if is_run or depth == DEEPEST else OS.list_directory(folder)
        folders = [folder / name for name in names if is_own_folder(folder / name)]
    except StorageError as error:
        unreadable[_shown(folder, root)] = str(error)
        return
    if is_run:
        yield folder
    for found in folders:
        yield from _runs_in(found, root=root, depth=depth + 1, unreadable=unreadable)


def _shown(folder: Path, root: Path) -> str:
    """Return a path below the root; what is no text in it is escaped."""
    return str(folder.relative_to(root)).encode("utf-8", "backslashreplace").decode("utf-8")


def _listed(run: Path, root: Path) -> ListedRun:
    path = _shown(run, root)
    try:
        return _read(run, path)
    except LedgerError as error:
        return ListedRun(
            path=path,
            run_id=None,
            name=None,
            purpose=None,
            status="unreadable",
            sessions=0,
            step=0,
            target_step=None,
            skipped=0,
            tokens_seen=0,
            started=None,
            last=None,
            problem=str(error),
        )


def _read(run: Path, path: str) -> ListedRun:
    stream, lock = open_stream(run)
    evaluations = EvaluationRecordChecker(stream, corpus=Corpus(None))
    completion = CompletionChecker(stream, evaluations=evaluations)
    audit_stream(stream, [*form_checkers(stream), evaluations, completion])
    history = stream.history
    status, _ = status_of(stream, lock, is_complete=completion.is_complete)
    broken = next((found for found in stream.findings.kept if found.rule.startswith("LG1")), None)
    is_broken = broken is not None and broken.severity == "error"
    counters = history.branch_counters() if history.sessions else None
    facts = history.facts
    return ListedRun(
        path=path,
        run_id=history.run_id,
        name=None if facts is None else facts.name,
        purpose=None if facts is None else facts.purpose,
        status="unreadable" if is_broken else status,
        sessions=len(history.sessions),
        step=0 if counters is None else counters.step,
        target_step=history.target_step(),
        skipped=0 if counters is None else counters.skipped,
        tokens_seen=0 if counters is None else counters.tokens_seen,
        started=history.sessions[0].start.time if history.sessions else None,
        last=history.sessions[-1].latest.time if history.sessions else None,
        problem=f"{broken.rule} {broken.where}: {broken.message}" if is_broken and broken else None,
    )
