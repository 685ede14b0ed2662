"""What the documentation shows is what runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ledger.audit import reconcile

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs/examples/plain_loop.py"


def run_example(run: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, EXAMPLE, run], capture_output=True, text=True, check=False)


def test_the_plain_loop_is_shown_as_it_is_and_in_fewer_than_forty_lines():
    code = EXAMPLE.read_text(encoding="utf-8")
    assert code.rstrip() in (ROOT / "docs/how-to/record-a-loop.md").read_text(encoding="utf-8")
    assert len(code.splitlines()) < 40


def test_the_plain_loop_trains_and_its_run_reconciles(tmp_path: Path):
    assert run_example(tmp_path / "run").returncode == 0
    verdict = reconcile(tmp_path / "run", rehash=True)
    assert [finding for finding in verdict.findings if finding.severity in ("error", "missing")] == []
    assert verdict.verdict == "passed"


@pytest.mark.slow
def test_a_killed_plain_loop_goes_on_and_reconciles(tmp_path: Path):
    run = tmp_path / "run"
    process = subprocess.Popen([sys.executable, EXAMPLE, run])
    while not list(run.glob("checkpoints/step-*")) and process.poll() is None:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert run_example(run).returncode == 0
    verdict = reconcile(run, rehash=True)
    assert verdict.verdict == "passed"
    assert len(json.loads((run / "run.json").read_text())["sessions"]) == 2


@pytest.mark.slow
def test_a_complete_plain_loop_writes_nothing_when_it_is_started_again(tmp_path: Path):
    run_example(tmp_path / "run")
    before = (tmp_path / "run/metrics.jsonl").read_bytes()
    done = run_example(tmp_path / "run")
    assert (done.returncode, done.stdout) == (0, "this run is complete\n")
    assert (tmp_path / "run/metrics.jsonl").read_bytes() == before
