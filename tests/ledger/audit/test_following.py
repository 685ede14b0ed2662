"""Following a run while its log grows, and when something happens to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import following
from ledger.audit.following import RunFollower
from ledger.errors import EvidenceMissingError, NewerVersionError
from ledger.records.layout import LOG
from ledger.storage.lock import RunLock
from ledger.storage.log_reader import read_log
from tests.ledger.audit.healthy import HEALTHY, INCOMPLETE

Run = Callable[[str], Path]


@pytest.mark.parametrize("name", HEALTHY)
def test_every_honest_run_is_followed_to_its_end_without_a_finding(name: str, healthy_run: Run):
    view = RunFollower(healthy_run(name)).poll()
    assert view.findings == []
    assert view.read_bytes == view.log_bytes
    assert view.is_over
    assert view.outcome == ("incomplete" if name in INCOMPLETE else "passed")


@pytest.mark.parametrize("name", ["resumed", "scaling"])
@pytest.mark.parametrize("bytes_at_once", [700, 1 << 20])
def test_a_growing_log_is_read_on_and_ends_as_if_read_at_once(name: str, bytes_at_once: int, copy_of: Run):
    run = copy_of(name)
    whole = (run / LOG).read_bytes()
    at_once = RunFollower(run).poll()
    (run / LOG).write_bytes(b"")
    follower, steps = RunFollower(run), []
    with RunLock(run), (run / LOG).open("r+b", buffering=0) as log:
        for start in range(0, len(whole), bytes_at_once):
            log.write(whole[start : start + bytes_at_once])
            view = follower.poll()
            steps.append(view.step)
            assert view.status == "running"
            assert not view.is_over
            assert view.outcome == "incomplete"
            assert view.notice is None
    view = follower.poll()
    assert view == at_once
    assert view.is_over
    assert len(set(steps)) > 1 or bytes_at_once > len(whole)


def test_only_what_was_added_is_read(copy_of: Run, monkeypatch: pytest.MonkeyPatch):
    run = copy_of("plain")
    follower = RunFollower(run)
    follower.poll()
    read: list[int] = []

    def counting(path, **options):
        reader = read_log(path, **options)
        after = options["after"]
        read.append(reader.size - (0 if after is None else after.offset + after.length))
        return reader

    monkeypatch.setattr(following, "read_log", counting)
    follower.poll()
    assert read == [0]


def test_a_long_log_is_read_piece_by_piece(healthy_run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(following, "LINES_AT_ONCE", 4)
    follower, steps = RunFollower(healthy_run("plain")), []
    while True:
        view = follower.poll()
        steps.append(view.step)
        if not follower.is_behind:
            break
        assert not view.is_over
    assert view.step == 6
    assert len(steps) > 3


def test_a_session_that_goes_on_has_a_rate_and_a_time_left(copy_of: Run):
    run = copy_of("interrupted")
    with RunLock(run):
        view = RunFollower(run).poll()
    assert view.status == "running"
    assert view.seconds_left is not None
    assert view.seconds_left > 0
    assert view.wall_rate is not None
    assert view.checkpoint == "checkpoints/step-00000003-s01"
    assert RunFollower(run).poll().seconds_left is None


def test_losses_are_those_of_the_branch(healthy_run: Run):
    view = RunFollower(healthy_run("resumed")).poll()
    assert len(view.losses) == 6


def test_a_log_that_was_replaced_is_read_anew(copy_of: Run, healthy_run: Run):
    run = copy_of("interrupted")
    follower = RunFollower(run)
    assert follower.poll().step == 4
    shutil.copy(healthy_run("plain") / LOG, run / "other")
    (run / "other").rename(run / LOG)
    view = follower.poll()
    assert view.notice is not None
    assert "replaced" in view.notice
    assert view.run_id == RunFollower(run).poll().run_id
    assert view.step == 6


def test_a_log_that_was_cut_short_is_read_anew(copy_of: Run):
    run = copy_of("plain")
    follower = RunFollower(run)
    follower.poll()
    lines = (run / LOG).read_bytes().splitlines(keepends=True)
    with (run / LOG).open("r+b") as log:
        log.truncate(sum(map(len, lines[:4])))
    view = follower.poll()
    assert view.notice is not None
    assert "shorter" in view.notice
    assert view.read_bytes == sum(map(len, lines[:4]))


def test_a_torn_tail_is_waited_for_and_its_loss_is_no_cut(copy_of: Run):
    run = copy_of("interrupted")
    whole = (run / LOG).read_bytes()
    (run / LOG).write_bytes(whole + b'{"event":"tra')
    follower = RunFollower(run)
    assert follower.poll().read_bytes == len(whole)
    (run / LOG).write_bytes(whole)
    view = follower.poll()
    assert (view.notice, view.findings) == (None, [])


def test_a_log_that_is_gone_ends_the_watching(copy_of: Run):
    run = copy_of("interrupted")
    follower = RunFollower(run)
    follower.poll()
    (run / LOG).unlink()
    with pytest.raises(EvidenceMissingError, match="the log is gone"):
        follower.poll()


def test_without_a_log_a_writer_is_waited_for(tmp_path: Path):
    with RunLock(tmp_path):
        view = RunFollower(tmp_path).poll()
        assert (view.session, view.is_over, view.outcome) == (None, False, "incomplete")
    with pytest.raises(EvidenceMissingError):
        RunFollower(tmp_path).poll()


def test_damage_is_found_while_it_happens(copy_of: Run):
    run = copy_of("plain")
    (run / LOG).write_bytes((run / LOG).read_bytes().replace(b'"clipped":0', b'"clipped":1', 1))
    view = RunFollower(run).poll()
    assert view.outcome == "failed"
    assert {found.rule for found in view.findings} >= {"LG102"}


def test_a_newer_version_is_refused(copy_of: Run):
    run = copy_of("plain")
    (run / LOG).write_bytes((run / LOG).read_bytes().replace(b'"log_version":1', b'"log_version":2', 1))
    with pytest.raises(NewerVersionError):
        RunFollower(run).poll()
