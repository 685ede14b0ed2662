"""What a deterministic run promises: within one environment the same bits, process after process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.audit import reconcile
from tests.trainer.kinds import KINDS
from tests.trainer.records import final_tensors, updates
from tests.trainer.tiny import tiny_config, train


def train_every_kind(data: Path, folder: Path) -> dict[str, str]:
    """Train a run of each number format and optimizer; return what each came to."""
    found = {}
    for name, kind in KINDS.items():
        run = folder / name
        config = tiny_config(data, **kind, run={"target_step": 6})
        assert train(config, run) == "completed"
        found[name] = json.dumps([final_tensors(run), str(updates(run))], sort_keys=True)
    return found


@pytest.mark.slow
def test_two_processes_with_one_thread_count_agree_bit_for_bit(dataset, tmp_path):
    script = (
        "import sys, json; from pathlib import Path; from tests.trainer.test_determinism import train_every_kind\n"
        "print(json.dumps(train_every_kind(Path(sys.argv[1]), Path(sys.argv[2]))))"
    )
    command = [sys.executable, "-c", script, str(dataset), str(tmp_path / "other")]
    root = Path(__file__).resolve().parents[2]
    other = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    first, second = train_every_kind(dataset, tmp_path / "this"), json.loads(other.stdout)
    assert len(first) == len(KINDS)
    assert first == second
    assert len(set(first.values())) == len(KINDS)
    verdict = reconcile(tmp_path / "other" / "fp16, muon", control=tmp_path / "this" / "fp16, muon")
    assert verdict.verdict == "passed", verdict.findings
