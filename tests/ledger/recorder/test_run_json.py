"""run.json holds nothing the log does not, and follows every start."""

from __future__ import annotations

import pytest

from ledger.history import History
from ledger.records.events import SessionStart
from ledger.records.layout import LOG, RUN
from ledger.records.parts import Start
from ledger.storage.documents import document_bytes
from ledger.storage.log import read_log
from tests.support.reading import events_of, run_document
from tests.support.systems import QuickFileSystem
from tests.support.toy import Killed, ToySettings, run_toy

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=4, checkpoint_interval=2)


def _die_at_step_3(recorder, _moment):
    if recorder.step == 3:
        raise Killed


def rebuilt(run_dir) -> bytes:
    """Return run.json as the log alone tells it."""
    told = History()
    for line in read_log(run_dir / LOG):
        assert line.event is not None
        told.add(line.event, chain=line.chain)
    document = told.run_document()
    assert document is not None
    return document_bytes(document)


def test_it_is_byte_for_byte_what_the_log_says(run_dir):
    with pytest.raises(Killed):
        run_toy(run_dir, SETTINGS, before=_die_at_step_3, fs=QUICK)
    assert (run_dir / RUN).read_bytes() == rebuilt(run_dir)
    starts: list[tuple[Start, int]] = [("resume", 4), ("restart", 5), ("auto", 6)]
    for start, target in starts:
        settings = ToySettings(target_step=target, checkpoint_interval=2)
        run_toy(run_dir, settings, start=start, fs=QUICK)
        assert (run_dir / RUN).read_bytes() == rebuilt(run_dir)


def test_it_pins_every_session_start(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    run_toy(run_dir, SETTINGS, start="restart", fs=QUICK)
    starts = events_of(run_dir, SessionStart)
    document = run_document(run_dir)
    assert [entry.log.seq for entry in document.sessions] == [event.seq for event in starts]
    assert [entry.session_id for entry in document.sessions] == [event.session_id for event in starts]
    assert document.model.parameters == {"weight": 1}
    assert (document.name, document.purpose, document.run_id) == ("toy", "resume", starts[0].run_id)


def test_only_the_first_session_states_the_facts_of_the_run(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    run_toy(run_dir, SETTINGS, start="restart", fs=QUICK)
    assert [event.run is not None for event in events_of(run_dir, SessionStart)] == [True, False]
