"""`ledger repair`: what it prints and how it exits; what it does is tested with `ledger.maintain`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.cli import main
from ledger.cli.repair import EXIT_CODES
from ledger.records.layout import LOG, RUN
from ledger.storage import lock as lock_module
from ledger.storage import mounts
from ledger.storage.filesystem import DurabilityWarning
from ledger.storage.lock import RunLock

Run = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "_PATIENCE_SECONDS", 0.02)


@pytest.fixture
def torn(copy_of: Run) -> Path:
    """Return a run whose log ends with a line that was cut short."""
    run = copy_of("plain")
    with (run / LOG).open("ab") as file:
        file.write(b'{"event":"train","se')
    return run


def test_a_dry_run_says_what_would_be_done_and_exits_with_3(torn: Path, capsys: pytest.CaptureFixture[str]):
    before = (torn / LOG).read_bytes()
    for arguments in ([], ["--dry-run"]):
        assert main(["repair", str(torn), *arguments]) == 3
        shown = capsys.readouterr().out
        assert "20 bytes after the last newline were never committed" in shown
        assert "would be copied to quarantine/, then cut off" in shown
        assert "do it with: --apply" in shown
    assert (torn / LOG).read_bytes() == before


def test_apply_does_it_and_then_there_is_nothing_to_do(torn: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["repair", str(torn), "--apply"]) == 0
    assert ": repaired" in capsys.readouterr().out
    assert main(["repair", str(torn), "--apply"]) == 0
    assert "nothing to repair" in capsys.readouterr().out
    assert main(["reconcile", str(torn)]) == 0


def test_json_says_the_same(torn: Path, capsys: pytest.CaptureFixture[str]):
    (torn / RUN).unlink()
    for number in range(30):
        (torn / f".run.json.tmp-{number:016x}").touch()
    assert main(["repair", str(torn), "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["outcome"] == "repairable"
    assert [step["what"] for step in found["steps"]] == ["torn tail", "run.json", "temporaries"]
    assert (found["temporary_count"], len(found["temporaries"])) == (30, 20)


def test_a_long_list_is_cut_and_counted(torn: Path, capsys: pytest.CaptureFixture[str]):
    for number in range(1000):
        (torn / f".run.json.tmp-{number:016x}").touch()
    assert main(["repair", str(torn), "--apply"]) == 0
    shown = capsys.readouterr().out
    assert "1,000 temporary files or folders" in shown
    assert "and 980 more" in shown
    assert len(shown.splitlines()) < 30


def test_damage_is_refused_with_what_to_do(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    data = bytearray((run / LOG).read_bytes())
    data[len(data) // 2] ^= 1
    (run / LOG).write_bytes(data)
    for arguments in ([], ["--apply"]):
        assert main(["repair", str(run), *arguments]) == 1
        shown = capsys.readouterr().out
        assert "damaged in a way that no repair undoes; nothing was changed" in shown
        assert "ledger reconcile" in shown


def test_apply_and_dry_run_contradict_each_other(torn: Path, capsys: pytest.CaptureFixture[str]):
    before = (torn / LOG).read_bytes()
    assert main(["repair", str(torn), "--apply", "--dry-run"]) == 2
    assert "contradict" in capsys.readouterr().err
    assert (torn / LOG).read_bytes() == before


def test_a_run_that_is_being_written(torn: Path, capsys: pytest.CaptureFixture[str]):
    with RunLock(torn) as lock:
        assert main(["repair", str(torn)]) == 3
        assert f"process {lock.holder.pid}" in capsys.readouterr().out
        assert main(["repair", str(torn), "--apply"]) == 5
        assert f"process {lock.holder.pid}" in capsys.readouterr().err


def test_a_network_file_system_is_refused_unless_asked_for(
    torn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    table = tmp_path / "mountinfo"
    table.write_text("1 0 0:1 / / rw - cifs server rw\n", encoding="utf-8")
    monkeypatch.setattr(mounts, "_MOUNT_TABLE", table)
    assert main(["repair", str(torn), "--apply"]) == 7
    assert "--allow-network-fs" in capsys.readouterr().err
    with pytest.warns(DurabilityWarning):
        assert main(["repair", str(torn), "--apply", "--allow-network-fs"]) == 0


@pytest.mark.parametrize(("path", "code"), [("", 2), ("absent", 2), (".", 3)])
def test_what_is_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, code: int):
    monkeypatch.chdir(tmp_path)
    assert main(["repair", path, "--apply"]) == code
    assert list(tmp_path.iterdir()) == []


def test_the_help_names_every_exit_code(capsys: pytest.CaptureFixture[str]):
    main(["repair", "--help"])
    shown = capsys.readouterr().out
    assert all(str(code) in shown for code in {*EXIT_CODES.values(), 5})
