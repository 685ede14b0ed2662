from __future__ import annotations

import base64
import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from ledger.errors import StorageError
from ledger.records.events import UnknownEvent, decode_event, encode_event
from ledger.records.fields import PREFIX_PATTERN, Sha256, Time
from ledger.storage.chain import chain_line, first_chain
from ledger.storage.log_reader import LogLine, LogTail, read_log
from tests.ledger.storage.building import DIGEST, RUN_ID, TIME, events, note, session_start, train, write_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


@pytest.fixture
def lines(path: Path) -> list[bytes]:
    """The ten stored lines of a healthy log."""
    return write_log(path, events(10)).splitlines(keepends=True)


def read(path: Path, data: bytes) -> tuple[list[LogLine], LogTail | None]:
    path.write_bytes(data)
    reader = read_log(path)
    found = list(reader)
    return found, reader.tail


class Strict(msgspec.Struct):
    """The texts of a train event, each with the pattern that msgspec checks."""

    time: Time
    batches: list[Annotated[str, msgspec.Meta(pattern=PREFIX_PATTERN)]]
    data_chain: Sha256


UNLAWFUL: dict[str, dict[str, Any]] = {
    "a capital digit": {"data_chain": DIGEST[:-1] + "B"},
    "a digit too few": {"data_chain": DIGEST[:-1]},
    "a newline behind a digest": {"data_chain": DIGEST + "\n"},
    "a long and a short prefix": {"batches": ["ab" * 8 + "a", "ab" * 7 + "a"]},
    "two prefixes in one": {"batches": ["ab" * 8 + " " + "ab" * 8]},
    "two prefixes in one, another empty": {"batches": ["ab" * 8 + " " + "ab" * 8, ""]},
    "a second prefix that is none": {"batches": ["ab" * 8, "xy" * 8]},
    "no batches and a chain that holds one": {"batches": [], "data_chain": f"{DIGEST} {'ab' * 8}"},
    "a time and a chain in one": {"time": f"{TIME} {DIGEST}", "data_chain": "ab" * 8, "batches": []},
    "a thirteenth month's twentieth": {"time": TIME.replace("-01-", "-23-")},
    "a time without its zone": {"time": TIME[:-1]},
    "a time in the digits of another script": {"time": TIME.replace("2", "\u0662")},
}


@pytest.mark.parametrize("name", UNLAWFUL)
def test_times_and_digests_of_a_train_event_are_judged_as_their_patterns_would(name: str):
    event = msgspec.structs.replace(train(1), **UNLAWFUL[name])
    with pytest.raises(msgspec.ValidationError) as expected:
        msgspec.convert(msgspec.to_builtins(event), Strict)
    with pytest.raises(ValueError, match="matching regex") as found:
        decode_event(encode_event(event))
    assert str(found.value) == str(expected.value)


def test_the_time_of_every_event_is_judged():
    with pytest.raises(ValueError, match=r"at `\$\.time`"):
        decode_event(encode_event(msgspec.structs.replace(note(1), time="yesterday")))


def test_any_number_of_batches_is_lawful():
    for batches in ([], ["ab" * 8], ["0123456789abcdef"] * 40):
        event = train(1, batches=batches)
        assert decode_event(encode_event(event)) == event


def damaged(found: list[LogLine]) -> list[int]:
    return [line.number for line in found if line.problem is not None]


def test_every_line_has_its_place_and_event(path: Path, lines: list[bytes]):
    found, tail = read(path, b"".join(lines))
    assert tail is None
    assert [line.event for line in found] == events(10)
    assert [line.number for line in found] == list(range(1, 11))
    assert [line.offset for line in found] == [sum(map(len, lines[:index])) for index in range(10)]
    assert [line.length for line in found] == [len(line) for line in lines]
    assert all(line.chain == line.expected_chain for line in found)


def test_a_healthy_line_is_its_body_and_chain(path: Path, lines: list[bytes]):
    found, _ = read(path, b"".join(lines))
    assert [line.body[:-1] + b',"chain":"' + line.chain.encode() + b'"}\n' for line in found] == lines


def test_an_empty_log_has_no_lines_and_no_tail(path: Path):
    assert read(path, b"") == ([], None)


TAILS: dict[str, Callable[[bytes], bytes]] = {
    "E04 a whole line without newline": lambda line: line[:-1],
    "half a line": lambda line: line[: len(line) // 2],
    "one byte": lambda line: line[:1],
    "E06 one NUL": lambda _: b"\0",
    "E06 512 NULs": lambda _: b"\0" * 512,
    "E06 4,096 NULs": lambda _: b"\0" * 4096,
    "half a line and NULs": lambda line: line[:20] + b"\0" * 4096,
    "more than a line may hold": lambda _: b"\0" * (3 << 20),
}


@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("before", [0, 9])
def test_what_stands_after_the_last_newline_is_the_tail(
    path: Path, lines: list[bytes], name: str, before: int
):
    torn = TAILS[name](lines[before])
    kept = b"".join(lines[:before])
    found, tail = read(path, kept + torn)
    assert len(found) == before
    assert damaged(found) == []
    assert tail is not None
    assert (tail.offset, tail.bytes, tail.problem) == (len(kept), len(torn), None)


DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int, str]] = {
    "E08 NULs in the middle": (
        lambda lines: [*lines[:4], b"\0" * 512, *lines[4:]],
        5,
        "512 NUL bytes from byte 0",
    ),
    "E08 a hole": (
        lambda lines: [*lines[:4], lines[4][:50] + b"\0" * 99 + lines[4][149:], *lines[5:]],
        5,
        "99 NUL",
    ),
    "E09 blank line": (lambda lines: [*lines[:4], b"\n", *lines[4:]], 5, "the line is blank"),
    "E09 two newlines at the end": (lambda lines: [*lines, b"\n"], 11, "the line is blank"),
    "E10 a bit in the middle": (
        lambda lines: [*lines[:3], lines[3].replace(b"a note", b"a nnte"), *lines[4:]],
        4,
        "chain",
    ),
    "E12 a record deleted": (lambda lines: [*lines[:4], *lines[5:]], 5, "chain"),
    "E13 a record twice": (lambda lines: [*lines[:4], lines[3], *lines[4:]], 5, "chain"),
    "E14 two records swapped": (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 5, "chain"),
    "E40 CRLF": (lambda lines: [line.replace(b"\n", b"\r\n") for line in lines], 1, "autocrlf"),
    "E40 BOM": (lambda lines: [b"\xef\xbb\xbf", *lines], 1, "byte order mark"),
    "E40 pretty-printed": (
        lambda lines: [json.dumps(json.loads(lines[0]), indent=1).encode(), b"\n"],
        1,
        "pretty-printed",
    ),
    "E40 keys sorted": (lambda lines: [_sorted(line) for line in lines], 1, "a tool rewrote"),
    "E40 spaces added": (
        lambda lines: [json.dumps(json.loads(line)).encode() + b"\n" for line in lines],
        1,
        "a tool rewrote",
    ),
    "E41 base64": (lambda lines: [base64.encodebytes(b"".join(lines))], 1, "base64"),
    "E20 seq as text": (lambda _: [_chained(0, b'"seq":0', b'"seq":"0"')], 1, "Expected `int`"),
    "E20 seq as a float": (lambda _: [_chained(0, b'"seq":0', b'"seq":0.0')], 1, "encoding"),
    "E20 seq negative": (lambda _: [_chained(0, b'"seq":0', b'"seq":-1')], 1, ">= 0"),
    "E20 seq as a bool": (lambda _: [_chained(0, b'"seq":0', b'"seq":false')], 1, "Expected `int`"),
    "a key twice": (lambda _: [_chained(0, b'"seq":0', b'"seq":1,"seq":0')], 1, "duplicate key"),
    "an unknown key": (lambda _: [_chained(0, b'"seq":0', b'"seq":0,"x":0')], 1, "unknown field"),
    "deep nesting": (
        lambda _: [_chained(0, b'"argv":[', b'"argv":[' + b"[" * 50_000)],
        1,
        "nested too deeply",
    ),
    "a long line": (lambda lines: [*lines[:4], b"x" * (1 << 20) + b"\n", *lines[4:]], 5, "at most 1,048,576"),
    "a very long line": (
        lambda lines: [*lines[:4], b"x" * (5 << 20) + b"\n", *lines[4:]],
        5,
        "holds 5,242,881 bytes",
    ),
}


def _sorted(line: bytes) -> bytes:
    return json.dumps(json.loads(line), sort_keys=True, separators=(",", ":")).encode() + b"\n"


def _chained(seq: int, old: bytes, new: bytes) -> bytes:
    """A first line with something replaced in it, but the right chain."""
    line, _ = chain_line(first_chain(RUN_ID), encode_event(session_start(seq)).replace(old, new))
    return line


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_at_its_line(path: Path, lines: list[bytes], name: str):
    damage, number, fragment = DAMAGE[name]
    found, _ = read(path, b"".join(damage(lines)))
    assert damaged(found)[0] == number
    assert fragment in str(found[number - 1].problem)
    assert found[number - 1].offset == sum(line.length for line in found[: number - 1])


def test_reading_goes_on_behind_damage(path: Path, lines: list[bytes]):
    found, _ = read(path, b"".join([*lines[:4], b"x" * (5 << 20) + b"\n", *lines[4:]]))
    assert [line.event for line in found if line.event is not None] == events(10)
    assert damaged(found) == [5]
    assert found[5].expected_chain == ""


def test_a_changed_chain_is_named_at_its_line_and_the_next(path: Path, lines: list[bytes]):
    other = lines[3].replace(lines[3][-20:-3], b"0" * 17)
    found, _ = read(path, b"".join([*lines[:3], other, *lines[4:]]))
    assert damaged(found) == [4, 5]
    assert found[3].event == events(10)[3]


def test_a_log_without_its_head_has_no_chain_to_begin_with(path: Path, lines: list[bytes]):
    found, _ = read(path, b"".join(lines[2:]))
    assert found[0].expected_chain == ""
    assert "does not begin with a session_start" in str(found[0].problem)
    assert damaged(found) == [1]
    assert damaged(list(read_log(path, run_id=RUN_ID))) == [1]


def test_two_joined_logs_break_at_the_joint(path: Path, lines: list[bytes]):
    found, _ = read(path, b"".join(lines * 2))
    assert damaged(found) == [11]


def test_a_gzipped_log_is_recognised(path: Path, lines: list[bytes]):
    found, tail = read(path, gzip.compress(b"".join(lines), mtime=0))
    problems = [line.problem for line in found] or [tail.problem if tail else None]
    assert "gzip" in str(problems[0])


def test_a_foreign_file_without_newline_is_no_torn_tail(path: Path):
    _, tail = read(path, b"\x1f\x8b no newline")
    assert tail is not None
    assert "gzip" in str(tail.problem)


def test_an_event_of_an_unknown_kind_is_kept(path: Path, lines: list[bytes]):
    body = encode_event(session_start()).replace(b'"session_start"', b'"new_kind"')
    line, _ = chain_line(lines[-1][-67:-3].decode(), body)
    found, _ = read(path, b"".join(lines) + line)
    assert isinstance(found[-1].event, UnknownEvent)
    assert damaged(found) == []


def test_a_newer_version_is_told_from_damage(path: Path):
    line = _chained(0, b'"log_version":1', b'"log_version":2')
    found, _ = read(path, line)
    assert found[0].newer_version == 2


def test_a_live_log_is_read_as_far_as_it_was_when_opened(path: Path, lines: list[bytes]):
    path.write_bytes(b"".join(lines[:5]))
    reader = read_log(path)
    with path.open("ab") as file:
        file.write(lines[5])
    assert len(list(reader)) == 5
    assert reader.size == sum(map(len, lines[:5]))


def test_a_log_that_shrinks_while_it_is_read_is_no_damage(path: Path):
    write_log(path, [session_start(), *(note(seq, "x" * 50_000) for seq in range(1, 40))])
    reader = read_log(path)
    next(reader)
    os.truncate(path, 100)
    with pytest.raises(StorageError, match="became shorter while it was read"):
        list(reader)


def test_the_file_is_closed_at_the_end_and_when_reading_is_given_up(path: Path, lines: list[bytes]):
    path.write_bytes(b"".join(lines))
    reader = read_log(path)
    list(reader)
    assert reader._descriptor is None
    given_up = read_log(path)
    for _ in given_up:
        break
    given_up._lines.close()
    assert given_up._descriptor is None
    with read_log(path) as unread:
        pass
    with pytest.raises(ValueError, match="closed before it was read"):
        list(unread)


def test_memory_stays_bounded_whatever_a_line_holds(path: Path):
    with path.open("wb") as file:
        file.truncate(200 << 20)
    tracemalloc.start()
    try:
        reader = read_log(path)
        assert list(reader) == []
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    assert reader.tail is not None
    assert reader.tail.bytes == 200 << 20


def test_reading_needs_no_right_to_write(path: Path, lines: list[bytes]):
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        before = path.stat()
        assert len(list(read_log(path))) == len(lines)
        assert path.stat().st_mtime_ns == before.st_mtime_ns
    finally:
        path.parent.chmod(0o755)
