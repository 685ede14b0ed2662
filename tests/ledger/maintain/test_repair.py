"""Repairing a run: exactly what a crash leaves, nothing else, and never at the cost of a byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.errors import LockedError, NewerVersionError, StorageError, UnsafeError
from ledger.maintain import repair_run
from ledger.records.events import TailRecovered
from ledger.records.layout import CHECKPOINTS, LOCK, LOG, QUARANTINE, RUN, SEAL
from ledger.storage import lock as lock_module
from ledger.storage import mounts
from ledger.storage.filesystem import DurabilityWarning
from ledger.storage.lock import RunLock
from ledger.storage.log import EventLog
from tests.ledger.maintain.conftest import QUICK, SETTINGS
from tests.support.audited import assert_honest
from tests.support.reading import events_of
from tests.support.systems import Fault, FaultyFileSystem
from tests.support.toy import Killed, run_toy
from tests.support.trees import contents, snapshot

TORN = b'{"event":"train","seq":99,"torn'
MANY = 400
BUT_THE_LOCK = frozenset({LOCK, "."})


def tear(run_dir: Path, tail: bytes = TORN) -> bytes:
    """Add a torn tail to a log and return the log without it."""
    whole = (run_dir / LOG).read_bytes()
    (run_dir / LOG).write_bytes(whole + tail)
    return whole


def require_refused(run_dir: Path, match: str) -> None:
    """Make sure that a repair refuses, with advice, and changes nothing."""
    before = snapshot(run_dir, without=BUT_THE_LOCK)
    for apply in (False, True):
        report = repair_run(run_dir, apply=apply, fs=QUICK)
        assert report.outcome == "refused"
        assert report.refusal is not None
        assert match in report.refusal
        assert report.refusal.endswith(")"), "a refusal says what to do instead"
    assert snapshot(run_dir, without=BUT_THE_LOCK) == before


def test_a_sound_run_is_left_as_it_is(run_dir: Path):
    before = snapshot(run_dir, without=BUT_THE_LOCK)
    assert repair_run(run_dir).outcome == "clean"
    assert repair_run(run_dir, apply=True, fs=QUICK).outcome == "clean"
    assert snapshot(run_dir, without=BUT_THE_LOCK) == before


def test_without_apply_nothing_is_written(run_dir: Path):
    tear(run_dir)
    (run_dir / RUN).unlink()
    (run_dir / ".run.json.tmp-0123456789abcdef").touch()
    before = snapshot(run_dir)
    report = repair_run(run_dir)
    assert report.outcome == "repairable"
    assert [step.what for step in report.steps] == ["torn tail", "run.json", "temporaries"]
    assert snapshot(run_dir) == before


def test_a_torn_tail_goes_to_quarantine_and_no_event_is_written(run_dir: Path):
    whole = tear(run_dir)
    assert repair_run(run_dir, apply=True, fs=QUICK).outcome == "repaired"
    assert (run_dir / LOG).read_bytes() == whole
    assert [path.read_bytes() for path in (run_dir / QUARANTINE).iterdir()] == [TORN]
    assert repair_run(run_dir, apply=True, fs=QUICK).outcome == "clean"
    assert_honest(run_dir)


def test_the_next_session_names_what_a_repair_moved_aside(run_dir: Path):
    tear(run_dir)
    repair_run(run_dir, apply=True, fs=QUICK)
    run_toy(run_dir, SETTINGS, start="resume", fs=QUICK)
    (event,) = events_of(run_dir, TailRecovered)
    assert (run_dir / event.file).read_bytes() == TORN
    assert reconcile(run_dir).verdict == "passed"


def test_a_log_cut_anywhere_is_repaired_to_its_whole_lines_or_refused_for_what_is_pinned(
    run_dir: Path, tmp_path: Path
):
    whole = (run_dir / LOG).read_bytes()
    outcomes = []
    for length in range(0, len(whole), 431):
        folder = Path(shutil.copytree(run_dir, tmp_path / "cut"))
        (folder / LOG).write_bytes(whole[:length])
        outcome = repair_run(folder, apply=True, fs=QUICK).outcome
        outcomes.append(outcome)
        left = (folder / LOG).read_bytes()
        if outcome == "refused":
            assert left == whole[:length]
        else:
            kept = [path.read_bytes() for path in folder.glob(f"{QUARANTINE}/*")]
            assert left + b"".join(kept) == whole[:length]
            assert left == whole[: len(left)]
            assert left.endswith(b"\n")
        shutil.rmtree(folder)
    assert {"refused", "repaired"} <= set(outcomes)
    assert outcomes.index("repaired") > outcomes.index("refused"), "what is pinned lies before the last lines"


class TestRunDocument:
    """run.json is rebuilt from the log, and what stood there is kept."""

    def require_rebuilt(self, run_dir: Path, content: bytes | None, problem: str) -> None:
        original = (run_dir / RUN).read_bytes()
        log = (run_dir / LOG).read_bytes()
        if content is None:
            (run_dir / RUN).unlink()
        else:
            (run_dir / RUN).write_bytes(content)
        (step,) = repair_run(run_dir).steps
        assert (step.what, problem in step.problem) == ("run.json", True)
        assert repair_run(run_dir, apply=True, fs=QUICK).outcome == "repaired"
        assert (run_dir / RUN).read_bytes() == original
        assert (run_dir / LOG).read_bytes() == log
        kept = [path.read_bytes() for path in run_dir.glob(f"{QUARANTINE}/*")]
        assert kept == ([] if content is None else [content])
        assert repair_run(run_dir, apply=True, fs=QUICK).outcome == "clean"
        assert_honest(run_dir)

    def test_absent(self, run_dir: Path):
        self.require_rebuilt(run_dir, None, "is absent")

    def test_behind_the_log(self, run_dir: Path, first_run_json: bytes):
        self.require_rebuilt(run_dir, first_run_json, "lists 1 of 2 sessions")

    @pytest.mark.parametrize("content", [b"", b"\0" * 4096, b'{"schema":"ledger.run",', b"x" * (9 << 20)])
    def test_unreadable(self, run_dir: Path, content: bytes):
        self.require_rebuilt(run_dir, content, "cannot be read")

    def test_edited(self, run_dir: Path):
        edited = (run_dir / RUN).read_bytes().replace(b'"name":"toy"', b'"name":"joy"')
        self.require_rebuilt(run_dir, edited, "differs from what the log says")

    def test_of_another_run(self, run_dir: Path):
        document = json.loads((run_dir / RUN).read_bytes()) | {"run_id": "another"}
        (run_dir / RUN).write_text(json.dumps(document), encoding="utf-8")
        require_refused(run_dir, "belongs to run another")

    def test_that_lists_a_session_which_the_log_lost(self, run_dir: Path):
        document = json.loads((run_dir / RUN).read_bytes())
        document["sessions"].append(document["sessions"][-1] | {"session": 3})
        (run_dir / RUN).write_text(json.dumps(document), encoding="utf-8")
        require_refused(run_dir, "holds no session 3")

    def test_that_pins_another_line(self, run_dir: Path):
        document = json.loads((run_dir / RUN).read_bytes())
        document["sessions"][-1]["log"]["chain"] = "0" * 64
        (run_dir / RUN).write_text(json.dumps(document), encoding="utf-8")
        require_refused(run_dir, "lists another session 2")

    def test_of_a_newer_version(self, run_dir: Path):
        content = (run_dir / RUN).read_bytes().replace(b'"version":1', b'"version":2')
        (run_dir / RUN).write_bytes(content)
        with pytest.raises(NewerVersionError):
            repair_run(run_dir, apply=True, fs=QUICK)
        assert (run_dir / RUN).read_bytes() == content

    def test_that_is_no_regular_file(self, run_dir: Path):
        (run_dir / RUN).rename(run_dir.with_name("elsewhere.json"))
        (run_dir / RUN).symlink_to("../elsewhere.json")
        with pytest.raises(UnsafeError):
            repair_run(run_dir, apply=True, fs=QUICK)


class TestTemporaries:
    """Only names of our pattern, only where the ledger makes them."""

    def test_all_that_are_ours_and_nothing_else_is_removed(self, run_dir: Path):
        before = contents(run_dir, without=BUT_THE_LOCK)
        mine = [".run.json.tmp-0123456789abcdef", "recipes/.x.tmp-0123456789abcdef"]
        for name in mine:
            (run_dir / name).write_bytes(b"x")
        folder = run_dir / CHECKPOINTS / ".step-00000009-s02.tmp-0123456789abcdef"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "model.safetensors").write_bytes(b"x")
        (folder / "link").symlink_to(run_dir / "recipes")
        foreign = ["notes.tmp", ".x.tmp-0123", ".x.tmp-0123456789ABCDEF", "x.tmp-0123456789abcdef"]
        for name in foreign:
            (run_dir / name).write_bytes(b"mine")
        report = repair_run(run_dir, apply=True, fs=QUICK)
        assert report.temporaries == [*mine, f"{CHECKPOINTS}/{folder.name}"]
        kept: dict[str, Any] = dict.fromkeys(foreign, b"mine")
        assert contents(run_dir, without=BUT_THE_LOCK) == before | kept

    def test_inside_a_checkpoint(self, run_dir: Path):
        (checkpoint, *_) = sorted((run_dir / CHECKPOINTS).iterdir())
        (checkpoint / ".manifest.json.tmp-0123456789abcdef").touch()
        assert repair_run(run_dir, apply=True, fs=QUICK).temporary_count == 1
        assert not list(checkpoint.glob(".*"))

    def test_of_a_thousand_crashes_few_are_listed_and_all_are_removed(self, run_dir: Path):
        before = sorted(contents(run_dir))
        for number in range(1000):
            (run_dir / f".run.json.tmp-{number:016x}").touch()
        report = repair_run(run_dir, apply=True, fs=QUICK)
        assert (report.temporary_count, len(report.temporaries)) == (1000, 20)
        assert sorted(contents(run_dir)) == before

    def test_a_link_in_place_of_a_folder_is_not_followed(self, run_dir: Path):
        elsewhere = run_dir.with_name("elsewhere")
        elsewhere.mkdir()
        (elsewhere / ".x.tmp-0123456789abcdef").touch()
        (run_dir / "evaluations").symlink_to(elsewhere)
        assert repair_run(run_dir, apply=True, fs=QUICK).outcome == "clean"
        assert list(elsewhere.iterdir())


class TestRefused:
    """Other damage: nothing is changed, and the report says what to do instead."""

    @pytest.fixture(autouse=True)
    def repairable(self, run_dir: Path) -> None:
        """Something a repair would do, so that a refusal has something to leave alone."""
        (run_dir / ".run.json.tmp-0123456789abcdef").touch()

    def test_a_flipped_bit(self, run_dir: Path):
        data = bytearray((run_dir / LOG).read_bytes())
        data[len(data) // 2] ^= 1
        (run_dir / LOG).write_bytes(data + TORN)
        require_refused(run_dir, f"{LOG}: line")

    def test_a_removed_line(self, run_dir: Path):
        lines = (run_dir / LOG).read_bytes().splitlines(keepends=True)
        (run_dir / LOG).write_bytes(b"".join(lines[:2] + lines[3:]))
        require_refused(run_dir, "its chain digest is")

    def test_a_log_that_lost_what_a_checkpoint_pins(self, run_dir: Path):
        lines = (run_dir / LOG).read_bytes().splitlines(keepends=True)
        (run_dir / LOG).write_bytes(b"".join(lines[:2]) + TORN)
        require_refused(run_dir, "part of the log is lost")

    def test_an_absent_log(self, run_dir: Path):
        (run_dir / LOG).unlink()
        require_refused(run_dir, "part of the log is lost")

    def test_an_absent_log_that_only_run_json_pins(self, run_dir: Path):
        (run_dir / LOG).unlink()
        shutil.rmtree(run_dir / CHECKPOINTS)
        require_refused(run_dir, "the log holds no session 1")

    def test_a_checkpoint_whose_manifest_cannot_be_read(self, run_dir: Path):
        (checkpoint, *_) = sorted((run_dir / CHECKPOINTS).iterdir())
        (checkpoint / "manifest.json").write_bytes(b"")
        require_refused(run_dir, "manifest.json: the file is empty")

    def test_a_tail_that_no_cut_write_left(self, run_dir: Path):
        (run_dir / RUN).unlink()
        shutil.rmtree(run_dir / CHECKPOINTS)
        (run_dir / LOG).write_bytes(b"<html>")
        require_refused(run_dir, "this is no event log")

    def test_a_sealed_run(self, run_dir: Path):
        (run_dir / SEAL).write_bytes(b"{}")
        require_refused(run_dir, "is sealed")


class TestLock:
    """One writer: a repair is one."""

    @pytest.fixture(autouse=True)
    def little_patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(lock_module, "_PATIENCE_SECONDS", 0.02)

    def test_a_run_that_a_writer_holds_is_not_repaired(self, run_dir: Path):
        tear(run_dir)
        with RunLock(run_dir) as lock:
            before = snapshot(run_dir)
            report = repair_run(run_dir)
            assert (report.outcome, report.steps, report.holder) == ("live", [], str(lock.holder))
            with pytest.raises(LockedError, match=f"process {os.getpid()} on"):
                repair_run(run_dir, apply=True)
            assert snapshot(run_dir) == before

    def test_no_writer_starts_during_a_repair(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch):
        tear(run_dir)
        refused = []

        def look(*_: object, **__: object) -> None:
            with pytest.raises(LockedError):
                RunLock(run_dir)
            refused.append(True)

        monkeypatch.setattr("ledger.maintain.repair.quarantine_tail", look)
        repair_run(run_dir, apply=True, fs=QUICK)
        assert refused

    def test_a_writer_whose_lock_file_was_removed_keeps_what_it_has_begun(self, run_dir: Path):
        (run_dir / ".run.json.tmp-0123456789abcdef").touch()
        with RunLock(run_dir), EventLog.open_for_append(run_dir / LOG):
            (run_dir / LOCK).unlink()
            with pytest.raises(LockedError, match="removed or replaced"):
                repair_run(run_dir, apply=True)
        assert (run_dir / ".run.json.tmp-0123456789abcdef").exists()

    def test_it_is_free_afterwards(self, run_dir: Path):
        tear(run_dir)
        repair_run(run_dir, apply=True, fs=QUICK)
        RunLock(run_dir).close()


@pytest.mark.parametrize(("first", "fault"), list(enumerate(["refused", "full", "killed", "killed after"])))
def test_a_fault_anywhere_loses_no_byte_and_the_next_repair_ends_it(
    run_dir: Path, tmp_path: Path, first_run_json: bytes, first: int, fault: Fault
):
    """Also when the same fault strikes the second attempt. Each operation meets one of the faults."""
    whole = tear(run_dir)
    rebuilt = (run_dir / RUN).read_bytes()
    (run_dir / RUN).write_bytes(first_run_json)
    (run_dir / ".run.json.tmp-0123456789abcdef").touch()
    for number in range(first, MANY, 4):
        folder = Path(shutil.copytree(run_dir, tmp_path / f"{number}"))
        struck = [_repair_with_a_fault(folder, number, fault) for _ in range(2)]
        log, document = (folder / LOG).read_bytes(), (folder / RUN).read_bytes()
        kept = [path.read_bytes() for path in folder.glob(f"{QUARANTINE}/[a-z]*")]
        assert log == whole + TORN or (log == whole and TORN in kept)
        assert document == first_run_json or (document == rebuilt and first_run_json in kept)
        assert repair_run(folder, apply=True, fs=QUICK).outcome in ("clean", "repaired")
        assert ((folder / LOG).read_bytes(), (folder / RUN).read_bytes()) == (whole, rebuilt)
        assert repair_run(folder).outcome == "clean"
        shutil.rmtree(folder)
        if not any(struck):
            break
    assert 20 < number < MANY - 4


def _repair_with_a_fault(folder: Path, number: int, fault: Fault) -> bool:
    """Repair while one operation fails or the process dies; tell whether it came to that."""
    fs = FaultyFileSystem()
    fs.arm(number, fault)
    try:
        repair_run(folder, apply=True, fs=fs)
    except (StorageError, Killed):
        return True
    return False


def test_a_network_file_system_is_not_written_unless_asked_for(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    whole = tear(run_dir)
    table = tmp_path / "mountinfo"
    table.write_text("1 0 0:1 / / rw - nfs4 server:/export rw\n", encoding="utf-8")
    monkeypatch.setattr(mounts, "_MOUNT_TABLE", table)
    assert repair_run(run_dir).outcome == "repairable", "reading is never refused"
    with pytest.raises(UnsafeError, match="network file system"):
        repair_run(run_dir, apply=True)
    assert (run_dir / LOG).read_bytes() == whole + TORN
    with pytest.warns(DurabilityWarning, match="server's word"):
        assert repair_run(run_dir, apply=True, allow_network_fs=True, fs=QUICK).outcome == "repaired"


def _chattr(flag: str, path: Path) -> bool:
    command = shutil.which("chattr")
    return command is not None and subprocess.run([command, flag, path], check=False).returncode == 0


def test_a_log_that_may_only_grow_is_not_cut_and_the_reason_is_told(run_dir: Path):
    whole = tear(run_dir)
    if not _chattr("+a", run_dir / LOG):
        pytest.skip("needs chattr +a")
    try:
        with pytest.raises(StorageError, match=r"EPERM.*attributes"):
            repair_run(run_dir, apply=True)
    finally:
        assert _chattr("-a", run_dir / LOG)
    assert (run_dir / LOG).read_bytes() == whole + TORN
    assert repair_run(run_dir, apply=True, fs=QUICK).outcome == "repaired"
