"""What a killed process leaves, and how the next session goes on from it."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from ledger.checkpoints import find_checkpoints
from ledger.errors import EvidenceMissingError, InvalidDocumentError, VerificationError
from ledger.recorder import RunRecorder
from ledger.records.events import SessionStart, TailRecovered
from ledger.records.layout import LOG, RUN
from tests.support.reading import events, events_of, history, run_document
from tests.support.systems import FaultyFileSystem, QuickFileSystem
from tests.support.toy import Killed, ToySettings, run_toy

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=6, checkpoint_interval=2, evaluate_every=None)


def kill(run_dir, *, moment="attempt", step=3, start="fresh", settings=SETTINGS) -> None:
    """Run until `moment` at `step` and die there."""

    def before(recorder, name):
        if name == moment and recorder.step == step:
            raise Killed

    with pytest.raises(Killed):
        run_toy(run_dir, settings, before=before, start=start, fs=QUICK)


def kill_behind(run_dir, operation, name, *, settings=SETTINGS) -> None:
    """Die directly behind the first operation of this kind on a file of this name."""
    probe = FaultyFileSystem()
    run_toy(run_dir, settings, fs=probe)
    shutil.rmtree(run_dir)
    fs = FaultyFileSystem()
    fs.arm(probe.tried.index((operation, name)), "killed after")
    with pytest.raises(Killed):
        run_toy(run_dir, settings, fs=fs)


def tear(run_dir, tail=b'{"event":"train","seq":') -> bytes:
    """Leave the beginning of a line that was never finished."""
    with (run_dir / LOG).open("ab") as log:
        log.write(tail)
    return tail


def test_a_killed_session_has_no_end_and_the_next_one_says_so(run_dir):
    kill(run_dir)
    run_toy(run_dir, SETTINGS, start="resume", fs=QUICK)
    first, second = events_of(run_dir, SessionStart)
    assert (first.previous_session, second.previous_session) == ("none", "unclean")
    assert history(run_dir).sessions[0].end is None
    run_toy(run_dir, SETTINGS, start="resume", fs=QUICK)
    assert events_of(run_dir, SessionStart)[-1].previous_session == "ended"


@pytest.mark.parametrize("length", [1, 7, 60, -1])
def test_a_torn_tail_goes_to_quarantine_and_is_named(run_dir, length):
    kill(run_dir)
    intact = (run_dir / LOG).read_bytes()
    tail = tear(run_dir, intact.splitlines()[-1][:length])
    run_toy(run_dir, SETTINGS, start="resume", fs=QUICK)
    (named,) = events_of(run_dir, TailRecovered)
    assert (run_dir / LOG).read_bytes().startswith(intact)
    assert (run_dir / named.file).read_bytes() == tail
    assert (named.bytes, named.sha256) == (len(tail), hashlib.sha256(tail).hexdigest())
    assert isinstance(events(run_dir)[named.seq - 1], SessionStart)


def test_each_torn_tail_is_named_once(run_dir):
    kill(run_dir)
    tear(run_dir)
    kill(run_dir, start="resume", moment="checkpoint", step=4)
    tear(run_dir, b'{"event":"checkpoint"')
    run_toy(run_dir, SETTINGS, start="resume", fs=QUICK)
    run_toy(run_dir, SETTINGS, start="resume", fs=QUICK)
    assert [event.session for event in events_of(run_dir, TailRecovered)] == [2, 3]


def test_what_no_cut_write_leaves_is_never_truncated(unaudited_dir):
    unaudited_dir.mkdir()
    (unaudited_dir / LOG).write_bytes(b"no log, but my notes")
    with pytest.raises(VerificationError, match="this is no event log"):
        run_toy(unaudited_dir, SETTINGS, fs=QUICK)
    assert (unaudited_dir / LOG).read_bytes() == b"no log, but my notes"
    assert sorted(path.name for path in unaudited_dir.iterdir()) == [LOG, "run.lock"]


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.999])
def test_killed_before_its_first_line_was_whole_a_run_starts_fresh_again(run_dir, part):
    kill(run_dir, moment="microbatch", step=0)
    line = (run_dir / LOG).read_bytes().splitlines(keepends=True)[0]
    (run_dir / LOG).write_bytes(line[: int(len(line) * part)])
    (run_dir / RUN).unlink()
    run_toy(run_dir, SETTINGS, fs=QUICK)
    assert [event.session for event in events_of(run_dir, SessionStart)] == [1]
    assert len(events_of(run_dir, TailRecovered)) == (1 if part else 0)
    assert run_document(run_dir).run_id == events_of(run_dir, SessionStart)[0].run_id


def test_killed_between_session_start_and_run_json_a_run_goes_on(run_dir):
    kill_behind(run_dir, "write", LOG)
    assert not (run_dir / RUN).exists()
    run_toy(run_dir, SETTINGS, start="auto", fs=QUICK)
    assert [session.session for session in run_document(run_dir).sessions] == [1, 2]


def test_a_checkpoint_killed_between_its_rename_and_its_event_is_found(run_dir):
    kill_behind(run_dir, "rename", "step-00000002-s01")
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        latest = recorder.latest_checkpoint()
    assert latest is not None
    assert latest.path == "checkpoints/step-00000002-s01"
    assert list(history(run_dir).checkpoints()) == []
    run_toy(run_dir, SETTINGS, start="resume", fs=QUICK)
    parent = events_of(run_dir, SessionStart)[-1].parent
    assert parent is not None
    assert (parent.step, parent.checkpoint) == (2, latest.path)


def test_a_checkpoint_killed_before_its_rename_is_none(run_dir):
    kill_behind(run_dir, "close", "manifest.json")
    left = [path.name for path in (run_dir / "checkpoints").iterdir()]
    assert len(left) == 1
    assert left[0].startswith(".step-00000002-s01.tmp-")
    run_toy(run_dir, SETTINGS, start="auto", fs=QUICK)
    assert events_of(run_dir, SessionStart)[-1].parent is None


def test_a_log_shorter_than_run_json_knows_is_refused(unaudited_dir):
    kill(unaudited_dir)
    kill(unaudited_dir, start="resume")
    lines = (unaudited_dir / LOG).read_bytes().splitlines(keepends=True)
    shutil.rmtree(unaudited_dir / "checkpoints")
    (unaudited_dir / LOG).write_bytes(lines[0])
    with pytest.raises(EvidenceMissingError, match=r"run.json pins: part of the log is lost"):
        run_toy(unaudited_dir, SETTINGS, start="auto", fs=QUICK)


def test_a_log_shorter_than_a_checkpoint_knows_is_refused(unaudited_dir):
    kill(unaudited_dir)
    lines = (unaudited_dir / LOG).read_bytes().splitlines(keepends=True)
    (unaudited_dir / LOG).write_bytes(lines[0])
    with pytest.raises(EvidenceMissingError, match=r"step-00000002-s01/manifest\.json pins"):
        run_toy(unaudited_dir, SETTINGS, start="auto", fs=QUICK)


def test_a_lost_log_is_refused(unaudited_dir):
    kill(unaudited_dir)
    (unaudited_dir / LOG).unlink()
    with pytest.raises(EvidenceMissingError, match="part of the log is lost"):
        run_toy(unaudited_dir, SETTINGS, fs=QUICK)


def test_a_log_of_another_run_is_refused(unaudited_dir, tmp_path):
    kill(unaudited_dir)
    kill(tmp_path / "other")
    shutil.copy(tmp_path / "other" / LOG, unaudited_dir / LOG)
    with pytest.raises(VerificationError, match=r"event \d+ is not the one that"):
        run_toy(unaudited_dir, SETTINGS, start="resume", fs=QUICK)


@pytest.mark.parametrize("number", [1, 3, 5])
def test_a_damaged_line_is_refused_with_its_number(unaudited_dir, number):
    kill(unaudited_dir)
    lines = (unaudited_dir / LOG).read_bytes().splitlines(keepends=True)
    assert len(lines) == 5
    lines[number - 1] = lines[number - 1].replace(b'"elapsed":', b'"elapsed":1', 1)
    damaged = b"".join(lines)
    (unaudited_dir / LOG).write_bytes(damaged)
    with pytest.raises(VerificationError, match=f"line {number} "):
        run_toy(unaudited_dir, SETTINGS, start="resume", fs=QUICK)
    assert (unaudited_dir / LOG).read_bytes() == damaged


def test_a_damaged_manifest_is_refused_by_name(unaudited_dir):
    kill(unaudited_dir)
    path = unaudited_dir / "checkpoints" / "step-00000002-s01" / "manifest.json"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InvalidDocumentError, match=r"manifest\.json"):
        run_toy(unaudited_dir, SETTINGS, start="resume", fs=QUICK)


def test_a_renamed_checkpoint_is_refused(unaudited_dir):
    kill(unaudited_dir)
    folder = unaudited_dir / "checkpoints" / "step-00000002-s01"
    folder.rename(folder.with_name("step-00000003-s01"))
    with pytest.raises(InvalidDocumentError, match="the folder is named step-00000003-s01"):
        run_toy(unaudited_dir, SETTINGS, start="resume", fs=QUICK)


def test_temporary_names_that_a_crash_left_are_no_checkpoints(unaudited_dir):
    kill(unaudited_dir)
    folder = unaudited_dir / "checkpoints" / "step-00000002-s01"
    folder.rename(folder.with_name(".step-00000002-s01.tmp-0123456789abcdef"))
    assert find_checkpoints(unaudited_dir) == []


def test_a_stale_run_json_is_written_anew(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    old = (run_dir / RUN).read_bytes()
    run_toy(run_dir, SETTINGS, start="restart", fs=QUICK)
    (run_dir / RUN).write_bytes(old)
    run_toy(run_dir, SETTINGS, start="restart", fs=QUICK)
    assert run_document(run_dir) == history(run_dir).run_document()
    assert len(run_document(run_dir).sessions) == 3
