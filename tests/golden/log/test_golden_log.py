"""The stored log of format version 1. It never changes: a new version of the format adds a file, this one stays."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ledger.records.events import EVENT_KINDS, Event
from ledger.storage.log import EventLog, read_log

GOLDEN = Path(__file__).with_name("v1.jsonl")
HEAD = "f2e6fe59d4c498c371b1819621160b1fcc6434cbab9581243fd6b6c1c20c999f"


def test_it_reads_without_a_problem_and_holds_every_kind():
    reader = read_log(GOLDEN)
    lines = list(reader)
    assert [line.problem for line in lines] == [None] * len(lines)
    assert reader.tail is None
    assert lines[-1].chain == HEAD
    assert {type(line.event) for line in lines} == set(EVENT_KINDS.values())


def test_its_chain_recomputes_by_the_formula_in_the_records_reference():
    chain = hashlib.sha256(b"ledger-log-v1\nrun-1").hexdigest()
    for line in GOLDEN.read_bytes().splitlines():
        chain = hashlib.sha256(chain.encode() + line[:-76]).hexdigest()
        assert line[-76:] == b',"chain":"' + chain.encode() + b'"}'
    assert chain == HEAD


def test_its_events_are_written_as_the_same_bytes_today(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    with EventLog.create(path, "run-1") as log:
        for line in read_log(GOLDEN):
            assert isinstance(line.event, Event)
            log.append(line.event)
    assert path.read_bytes() == GOLDEN.read_bytes()
