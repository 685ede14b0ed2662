from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from ledger.errors import EvidenceMissingError, LedgerError, VerificationError
from ledger.storage.log import EventLog, list_quarantined, quarantine_tail, read_log
from tests.ledger.storage.building import events, note, write_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    write_log(path, events(4))
    return path


@pytest.mark.parametrize("torn", [b"{", b'{"event":"note","seq":4', b"\0" * 4096, b"\0" * (3 << 20)])
def test_a_torn_tail_is_moved_aside_and_the_log_goes_on(log: Path, torn: bytes):
    whole = log.read_bytes()
    log.write_bytes(whole + torn)
    moved = quarantine_tail(log.parent)
    assert moved is not None
    assert (moved.bytes, moved.sha256) == (len(torn), hashlib.sha256(torn).hexdigest())
    assert (log.parent / moved.file).read_bytes() == torn
    assert log.read_bytes() == whole
    assert list_quarantined(log.parent) == [moved]
    with EventLog.open_for_append(log) as continued:
        continued.append(note(4))
    assert [line.problem for line in read_log(log)] == [None] * 5


def test_a_log_that_is_nothing_but_a_torn_line_becomes_empty(log: Path):
    torn = log.read_bytes()[:50]
    log.write_bytes(torn)
    assert quarantine_tail(log.parent) is not None
    assert log.read_bytes() == b""


def test_a_whole_log_is_left_alone(log: Path):
    whole = log.read_bytes()
    assert quarantine_tail(log.parent) is None
    assert log.read_bytes() == whole
    assert list_quarantined(log.parent) == []


def test_the_same_torn_bytes_twice_at_one_place_are_one_file(log: Path):
    whole = log.read_bytes()
    for _ in range(2):
        log.write_bytes(whole + b"{")
        quarantine_tail(log.parent)
    assert len(list_quarantined(log.parent)) == 1


def test_tails_are_listed_in_the_order_of_their_place(log: Path):
    whole = log.read_bytes()
    log.write_bytes(whole + b"{")
    first = quarantine_tail(log.parent)
    with EventLog.open_for_append(log) as continued:
        continued.append(note(4))
    log.write_bytes(log.read_bytes() + b"{")
    second = quarantine_tail(log.parent)
    assert first != second
    assert list_quarantined(log.parent) == [first, second]


@pytest.mark.parametrize("damage", ["a flipped bit", "a blank line", "a deleted line"])
def test_a_log_that_is_damaged_otherwise_is_not_touched(log: Path, damage: str):
    lines = log.read_bytes().splitlines(keepends=True)
    match damage:
        case "a flipped bit":
            lines[1] = lines[1].replace(b'"seq":1', b'"seq":0')
        case "a blank line":
            lines.insert(2, b"\n")
        case "a deleted line":
            del lines[2]
    data = b"".join(lines) + b"{"
    log.write_bytes(data)
    with pytest.raises(VerificationError, match="the log is damaged"):
        quarantine_tail(log.parent)
    assert log.read_bytes() == data
    assert not (log.parent / "quarantine").exists()


@pytest.mark.parametrize("foreign", [b"\x1f\x8b\x08", b"<html>", b"some text", b"PK\x03\x04"])
def test_a_foreign_file_is_not_cut(log: Path, foreign: bytes):
    log.write_bytes(foreign)
    with pytest.raises(LedgerError, match="this is no event log"):
        quarantine_tail(log.parent)
    assert log.read_bytes() == foreign


def test_an_absent_log_is_missing_evidence(tmp_path: Path):
    with pytest.raises(EvidenceMissingError):
        quarantine_tail(tmp_path)
