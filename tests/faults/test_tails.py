"""Logs whose end is torn, cut, filled with NULs, rolled back or growing: the verdict, and what a resume does."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile
from ledger.checkpoints import find_checkpoints
from ledger.cli import main
from ledger.errors import LedgerError
from ledger.records.layout import LOG, RUN
from ledger.storage.filesystem import OS
from tests.ledger.storage.building import session_start, train, write_log
from tests.support.faults import Snapshot
from tests.support.faults_checks import check_passed
from tests.support.faults_scenarios import finish_run
from tests.support.faults_session import session
from tests.support.toy import attempt, save


def begun(place: Path) -> Path:
    """Make a run of one session with a checkpoint and work behind it, which did not end."""

    def body(recorder, loop) -> None:
        for _ in range(2):
            attempt(recorder, loop)
        save(recorder, loop, "interval")
        attempt(recorder, loop)
        recorder.abandon()

    session(place / "run", OS, body)
    return place / "run"


def lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


INCOMPLETE, FAILED = 3, 1
TAILS: dict[str, tuple[Callable[[bytes], bytes], int, bool]] = {
    "E04 a whole last line without its newline": (lambda log: log[:-1], INCOMPLETE, True),
    "E06 one NUL behind the last newline": (lambda log: log + b"\0", INCOMPLETE, True),
    "E06 512 NULs": (lambda log: log + bytes(512), INCOMPLETE, True),
    "E06 4096 NULs": (lambda log: log + bytes(4_096), INCOMPLETE, True),
    "half a line and NULs": (lambda log: log[:-40] + bytes(40), INCOMPLETE, True),
    "half a line": (lambda log: log[:-40], INCOMPLETE, True),
    "E08 512 NULs in the middle": (lambda log: log[:900] + bytes(512) + log[1_412:], FAILED, False),
    "E09 two newlines at the end": (lambda log: log + b"\n", FAILED, False),
    "E09 a blank line in the middle": (lambda log: log.replace(b"\n", b"\n\n", 1), FAILED, False),
    "E17 cut before what the checkpoint pins": (lambda log: b"".join(lines(log)[:2]), FAILED, False),
    "E18 cut behind what is pinned": (lambda log: b"".join(lines(log)[:-1]), INCOMPLETE, True),
    "E02 nothing, where records are pinned": (lambda _: b"", FAILED, False),
    "E12 a line left out": (lambda log: b"".join(lines(log)[:1] + lines(log)[2:]), FAILED, False),
}
"""Name → what happens to the log, the exit code of reconcile, whether a resume goes on."""


@pytest.mark.parametrize("name", TAILS)
def test_the_end_of_a_log(name, tmp_path):
    damage, code, goes_on = TAILS[name]
    run = begun(tmp_path)
    log = run / LOG
    log.write_bytes(damage(log.read_bytes()))
    before = Snapshot.of(run)
    assert main(["reconcile", str(run)]) == code
    assert Snapshot.of(run) == before
    if goes_on:
        finish_run(tmp_path)
        assert not check_passed(run)
        return
    with pytest.raises(LedgerError):
        finish_run(tmp_path)
    after = Snapshot.of(run)
    assert {path: after[path] for path in before if path != "run.lock"} == {
        path: data for path, data in before.items() if path != "run.lock"
    }


def test_an_absent_log_is_missing_and_never_begun_anew(tmp_path):
    run = begun(tmp_path)
    (run / LOG).unlink()
    assert main(["reconcile", str(run)]) in (FAILED, INCOMPLETE)
    with pytest.raises(LedgerError):
        finish_run(tmp_path)
    assert not (run / LOG).exists()


def test_a_flipped_last_newline_of_a_pinned_line_is_a_loss(tmp_path):
    session(tmp_path / "run", OS, lambda recorder, _loop: recorder.abandon())
    log = tmp_path / "run" / LOG
    log.write_bytes(log.read_bytes()[:-1] + b"\x0b")
    assert main(["reconcile", str(tmp_path / "run")]) == FAILED
    with pytest.raises(LedgerError):
        finish_run(tmp_path)


def test_an_empty_log_that_nothing_pins_is_begun(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOG).write_bytes(b"")
    assert main(["reconcile", str(tmp_path / "run")]) == INCOMPLETE
    finish_run(tmp_path)
    assert not check_passed(tmp_path / "run")


def test_a_log_rolled_back_behind_newer_records_is_a_loss(tmp_path):
    run = begun(tmp_path)
    old = (run / LOG).read_bytes()
    finish_run(tmp_path)
    (run / LOG).write_bytes(old)
    assert main(["reconcile", str(run)]) == FAILED
    with pytest.raises(LedgerError):
        finish_run(tmp_path)


def test_a_run_rolled_back_as_a_whole_goes_on(tmp_path):
    run = begun(tmp_path)
    shutil.copytree(run, tmp_path / "backup")
    finish_run(tmp_path)
    shutil.rmtree(run)
    (tmp_path / "backup").rename(run)
    assert main(["reconcile", str(run)]) == INCOMPLETE
    finish_run(tmp_path)
    assert not check_passed(run)


def test_a_copy_that_lacks_the_last_blocks_is_torn_or_a_loss_by_its_pins(tmp_path):
    """A copy of a live run, where the log was read before the newest checkpoint was."""
    run = begun(tmp_path)
    whole = (run / LOG).read_bytes()
    (checkpoint,) = find_checkpoints(run)
    pinned = len(b"".join(lines(whole)[: checkpoint.manifest.log.seq + 1]))
    for size in {*range(0, len(whole), 307), pinned - 1, pinned}:
        (run / LOG).write_bytes(whole[:size])
        assert (size, reconcile(run).verdict) == (size, "failed" if size < pinned else "incomplete")


def test_what_stands_beside_an_anchor_is_told(tmp_path, capsys):
    run = begun(tmp_path)
    (run / RUN).rename(run / "kept")
    main(["reconcile", str(run), "--json"])
    assert "log beyond its last anchor" in capsys.readouterr().out


@pytest.mark.slow
def test_reading_grows_no_faster_than_the_log(tmp_path):
    """Ten times the lines take about ten times the time, at a hundred thousand lines of one session."""
    seconds = []
    for count in (10_000, 100_000):
        path = tmp_path / str(count)
        path.mkdir()
        write_log(path / LOG, [session_start(), *(train(seq) for seq in range(1, count))])
        began = time.process_time()
        assert reconcile(path).verdict != "passed"
        seconds.append(time.process_time() - began)
    assert seconds[1] < 20 * seconds[0]
