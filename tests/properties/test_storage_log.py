from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import LedgerError
from ledger.records.events import Event
from ledger.records.fields import MAX_FLOAT
from ledger.storage import log_reader
from ledger.storage.canonical import sha256_hex
from ledger.storage.log import EventLog, quarantine_tail, read_log
from tests.ledger.storage.building import RUN_ID, events, note, session_start, train, write_log

MEASUREMENTS = st.floats(0, MAX_FLOAT) | st.sampled_from(["NaN", "Infinity", "-Infinity"])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """The events of a healthy log."""
    count = draw(st.integers(0, 8))
    written: list[Event] = [session_start()]
    for seq in range(1, count + 1):
        if draw(st.booleans()):
            written.append(note(seq, draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))))
        else:
            maps = st.dictionaries(NAMES, MEASUREMENTS, max_size=3)
            written.append(train(seq, loss=draw(MEASUREMENTS), diagnostics=draw(maps)))
    return written


@given(logs(), st.data())
def test_what_was_appended_is_read_whatever_the_sessions_of_writing(
    written: list[Event], data: st.DataObject
):
    pause = data.draw(st.integers(0, len(written)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        positions = []
        with EventLog.create(path, RUN_ID) as log:
            positions += [log.append(event) for event in written[:pause]]
        with EventLog.open_for_append(path, RUN_ID) as log:
            positions += [log.append(event) for event in written[pause:]]
        lines = list(read_log(path))
    assert [line.event for line in lines] == written
    assert [line.position for line in lines] == positions
    assert all(line.problem is None for line in lines)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a log of five events."""
    return write_log(tmp_path_factory.mktemp("whole") / "metrics.jsonl", events(5))


def test_every_cut_leaves_an_exact_prefix_and_at_most_a_torn_tail(whole: bytes, tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        reader = read_log(path)
        lines = list(reader)
        complete = whole[:length].count(b"\n")
        torn = length - (whole[:length].rfind(b"\n") + 1)
        assert [line.event for line in lines] == events(5)[:complete]
        assert all(line.problem is None for line in lines)
        assert (reader.tail.bytes if reader.tail else 0) == torn
        assert reader.tail is None or reader.tail.problem is None


def test_after_every_cut_the_tail_is_quarantined_and_the_log_ends_as_if_never_cut(
    whole: bytes, tmp_path: Path
):
    path = tmp_path / "metrics.jsonl"
    for length in range(0, len(whole) + 1, 7):
        path.write_bytes(whole[:length])
        quarantine_tail(tmp_path)
        with EventLog.open_for_append(path, RUN_ID) as log:
            for event in events(5)[0 if log.head is None else log.head.seq + 1 :]:
                log.append(event)
        assert path.read_bytes() == whole


@given(
    st.lists(st.binary(max_size=30) | st.just(b"\n") | st.just(b"x" * 50), max_size=12).map(b"".join),
    st.integers(1, 20),
    st.integers(5, 40),
)
def test_any_bytes_are_accounted_for_wherever_blocks_end(
    content: bytes, block_bytes: int, max_line_bytes: int
):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "_BLOCK_BYTES", block_bytes)
        patch.setattr(log_reader, "MAX_LINE_BYTES", max_line_bytes)
        path = Path(folder) / "metrics.jsonl"
        path.write_bytes(content)
        reader = read_log(path)
        lines = list(reader)
    *expected, torn = content.split(b"\n")
    assert [line.length for line in lines] == [len(line) + 1 for line in expected]
    assert [line.offset for line in lines] == [
        sum(len(line) + 1 for line in expected[:n]) for n in range(len(lines))
    ]
    assert all(line.problem is not None for line in lines)
    found = None if reader.tail is None else (reader.tail.offset, reader.tail.bytes, reader.tail.sha256)
    assert found == ((len(content) - len(torn), len(torn), sha256_hex(torn)) if torn else None)


@given(st.integers(1, 600))
def test_a_healthy_log_reads_alike_wherever_blocks_end(whole: bytes, block_bytes: int):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_reader, "_BLOCK_BYTES", block_bytes)
        path = Path(folder) / "metrics.jsonl"
        path.write_bytes(whole)
        assert [line.event for line in read_log(path)] == events(5)


def first_damage(path: Path) -> int | None:
    """The number of the first line with a problem; behind the last line for a tail; `None` for a healthy log."""
    reader = read_log(path)
    lines = list(reader)
    behind = [] if reader.tail is None else [len(lines) + 1]
    return next(iter([line.number for line in lines if line.problem is not None] + behind), None)


def test_every_flipped_bit_is_found_at_its_line(whole: bytes, tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    for offset in range(len(whole)):
        data = bytearray(whole)
        data[offset] ^= 1 << (offset % 8)
        path.write_bytes(data)
        assert first_damage(path) == whole[:offset].count(b"\n") + 1, offset


@given(st.data())
def test_any_damage_is_found_and_the_log_is_neither_continued_nor_cut(whole: bytes, data: st.DataObject):
    offset = data.draw(st.integers(0, len(whole) - 2))
    removed = data.draw(st.integers(0, min(40, len(whole) - 1 - offset)))
    added = data.draw(st.binary(max_size=40))
    changed = whole[:offset] + added + whole[offset + removed :]
    if changed == whole or changed.count(b"\n") == 0:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        path.write_bytes(changed)
        damage = first_damage(path)
        assert damage is not None
        assert damage <= whole[:offset].count(b"\n") + 1 + added.count(b"\n")
        with pytest.raises(LedgerError):
            EventLog.open_for_append(path, RUN_ID)
        with pytest.raises(LedgerError):
            quarantine_tail(folder)
        assert path.read_bytes() == changed
