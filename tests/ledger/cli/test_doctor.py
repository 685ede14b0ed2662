"""`ledger doctor`: what it prints and how it exits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ledger.cli import main
from ledger.maintain.probes import PROBES
from ledger.storage import mounts


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let the system say ext4; returns what it says, to be changed."""
    found = tmp_path_factory.mktemp("table") / "mountinfo"
    found.write_text("1 0 0:1 / / rw - ext4 /dev/disk rw\n", encoding="utf-8")
    monkeypatch.setattr(mounts, "_MOUNT_TABLE", found)
    monkeypatch.delenv(mounts.ALLOW_NETWORK_FS, raising=False)
    return found


def test_a_safe_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "safe" in shown.splitlines()[0]
    assert all(name in shown for name in PROBES)
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_it_is_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["folder"] == "."
    assert found["file_system"] == {"kind": "ext4", "point": "/", "source": "/dev/disk"}
    assert {check["name"] for check in found["checks"]} == {"file system", *PROBES}


def test_an_unsafe_folder_exits_with_7_unless_asked_for(
    tmp_path: Path, table: Path, capsys: pytest.CaptureFixture[str]
):
    table.write_text("1 0 0:1 / / rw - nfs4 server:/export rw\n", encoding="utf-8")
    assert main(["doctor", str(tmp_path)]) == 7
    assert "unsafe" in capsys.readouterr().out.splitlines()[0]
    assert main(["doctor", str(tmp_path), "--allow-network-fs"]) == 0
    assert "safe with warnings" in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("path", ["", "absent"])
def test_what_is_no_folder(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", path]) == 2
