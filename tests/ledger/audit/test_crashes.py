"""A process can die at any byte it writes. What it leaves is honest, whatever that byte was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile
from tests.ledger.audit.healthy import SMALL
from tests.support.toy import run_toy


def cut(run: Path, *, lines: int, torn: bytes = b"") -> None:
    """Make a run what it was when this many lines were written: what came later is gone."""
    log = run / "metrics.jsonl"
    kept = log.read_bytes().splitlines(keepends=True)[:lines]
    log.write_bytes(b"".join(kept) + torn)
    said = b"".join(kept)
    for checkpoint in (run / "checkpoints").iterdir():
        pinned = json.loads((checkpoint / "manifest.json").read_bytes())["log"]["seq"]
        if pinned >= lines or f"checkpoints/{checkpoint.name}".encode() not in said:
            shutil.rmtree(checkpoint)
    for evaluation in (run / "evaluations").iterdir():
        if evaluation.name.encode() not in said:
            evaluation.unlink()


def count_lines(run: Path) -> int:
    return len((run / "metrics.jsonl").read_bytes().splitlines())


@pytest.mark.parametrize("torn", [b"", b'{"event":"train","seq', b"\0" * 512])
def test_a_run_killed_after_any_line_is_never_called_broken(
    torn: bytes, healthy_run: Callable[[str], Path], tmp_path: Path
):
    source = healthy_run("plain")
    for lines in range(1, count_lines(source)):
        run = tmp_path / f"run-{lines}"
        shutil.copytree(source, run)
        cut(run, lines=lines, torn=torn)
        verdict = reconcile(run)
        assert verdict.finding_counts["error"] == 0, (lines, verdict.findings)
        assert verdict.verdict == "incomplete"
        assert verdict.status == "crashed"


@pytest.mark.parametrize("lines", [1, 3, 5, 6, 8, 11])
def test_a_run_killed_and_resumed_reconciles_to_the_control(
    lines: int, healthy_run: Callable[[str], Path], tmp_path: Path
):
    run = tmp_path / "run"
    shutil.copytree(healthy_run("plain"), run)
    cut(run, lines=lines, torn=b'{"event":')
    run_toy(run, SMALL, start="auto")
    verdict = reconcile(run, control=healthy_run("resumed"))
    assert verdict.findings == []
    assert verdict.verdict == "passed"
    assert set(verdict.account["equivalence"].values()) == {"bitwise"}


def test_a_run_killed_before_its_first_line_is_unknown(healthy_run: Callable[[str], Path], tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(healthy_run("plain"), run)
    cut(run, lines=0, torn=b'{"event":"session_st')
    (run / "run.json").unlink()
    verdict = reconcile(run)
    assert {finding.rule for finding in verdict.findings} == {"LG104"}
    assert (verdict.verdict, verdict.status) == ("incomplete", "unknown")


def test_a_copy_on_another_host_cannot_tell_whether_the_run_lives(
    copy_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("ledger.audit.account.hostname", lambda: "elsewhere")
    verdict = reconcile(copy_of("interrupted"))
    assert verdict.status == "unknown"
    assert "liveness unknown" in verdict.account["status_evidence"]
