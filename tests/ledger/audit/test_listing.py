from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import list_runs
from ledger.errors import UsageError


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
