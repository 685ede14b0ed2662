"""Reading a run back: its events, its history, its run.json."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from ledger.history import History
from ledger.recorder.opening import open_run
from ledger.records.documents import RunDocument
from ledger.records.events import AnyEvent, Event
from ledger.records.layout import LOG, RUN
from ledger.storage.documents import read_document
from ledger.storage.log import read_log

E = TypeVar("E", bound=Event)


def events(run_dir: Path) -> list[AnyEvent]:
    """Return every event of an intact log."""
    found: list[AnyEvent] = []
    for line in read_log(run_dir / LOG):
        assert line.problem is None
        assert isinstance(line.event, Event)  # and no UnknownEvent
        found.append(line.event)
    return found


def events_of(run_dir: Path, kind: type[E]) -> list[E]:
    """Return the events of one kind."""
    return [event for event in events(run_dir) if isinstance(event, kind)]


def history(run_dir: Path) -> History:
    """Return the history that the log tells."""
    return open_run(run_dir).history


def run_document(run_dir: Path) -> RunDocument:
    """Return run.json."""
    return read_document(run_dir / RUN, RunDocument)
