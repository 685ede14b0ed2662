from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import list_runs
from ledger.cli import main
from ledger.errors import UsageError
from ledger.storage.filesystem import FileSystem
from tests.support.faults import diverted


def test_every_run_below_a_folder_is_listed(healthy_run: Callable[[str], Path], tmp_path: Path):
    for name in ("plain", "interrupted", "resumed"):
        shutil.copytree(healthy_run(name), tmp_path / "all" / name)
    shutil.copytree(healthy_run("plain"), tmp_path / "all" / "deep" / "er" / "run")
    (tmp_path / "all" / "a file").write_text("")
    (tmp_path / "all" / "link").symlink_to("plain")
    found = list_runs(tmp_path / "all").runs
    assert [(run.path, run.status, run.step, run.target_step, run.sessions) for run in found] == [
        ("deep/er/run", "complete", 6, 6, 1),
        ("interrupted", "crashed", 4, 6, 1),
        ("plain", "complete", 6, 6, 1),
        ("resumed", "complete", 6, 6, 2),
    ]
    assert {run.name for run in found} == {"toy"}


def test_a_run_that_cannot_be_followed_is_listed_as_such(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"loss":', b'"lost":', 1))
    (found,) = list_runs(run.parent).runs
    assert found.status == "unreadable"
    assert found.problem is not None
    assert found.problem.startswith("LG101")


def test_an_empty_folder_has_no_runs(tmp_path: Path):
    assert list_runs(tmp_path).runs == []
    with pytest.raises(UsageError):
        list_runs(tmp_path / "nowhere")


def test_odd_neighbours_are_passed_over(healthy_run: Callable[[str], Path], tmp_path: Path):
    shutil.copytree(healthy_run("plain"), tmp_path / "run")
    (tmp_path / "run.attestation.json").write_text("{}")
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "metadata.json").write_text("{}")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "metrics.jsonl")
    found = list_runs(tmp_path)
    assert [(run.path, run.status) for run in found.runs] == [("pipe", "unreadable"), ("run", "complete")]
    assert found.unreadable == {}


def test_a_folder_that_cannot_be_looked_into_hides_no_other(
    healthy_run: Callable[[str], Path], tmp_path: Path
):
    shutil.copytree(healthy_run("plain"), tmp_path / "run")
    (tmp_path / "locked" / "inside").mkdir(parents=True)

    class Locked(FileSystem):
        def perform(self, operation: str, path: Any, function: Any, *arguments: Any, **options: Any) -> Any:
            if operation == "list" and Path(path).name == "locked":
                raise PermissionError(errno.EACCES, "denied")
            return super().perform(operation, path, function, *arguments, **options)

    with diverted(Locked()):
        found = list_runs(tmp_path)
    assert [run.path for run in found.runs] == ["run"]
    assert "denied" in found.unreadable["locked"]


def test_names_that_are_no_text_stay_in_their_row(
    healthy_run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for name in ("two\nlines\x1b[31m", os.fsdecode(b"caf\xe9")):
        shutil.copytree(healthy_run("plain"), tmp_path / name)
    assert main(["list", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[1].startswith(r"  caf\udce9 ")
    assert lines[2].startswith(r"  two\nlines\x1b[31m ")
    assert main(["list", str(tmp_path), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["path"].encode() for run in runs] == [rb"caf\udce9", b"two\nlines\x1b[31m"]
