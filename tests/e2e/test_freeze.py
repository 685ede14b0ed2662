"""From a pilot to a sealed run: rehearsed, frozen, compared, trained under the lock, reconciled, reported, sealed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ledger.cli import main
from ledger.locks import read_lock
from ledger.report.schemas import schema_of
from tests.e2e.small_pilot import rehearse, write_small_pilot
from trainer.cli import main as train

pytestmark = pytest.mark.slow


def call_trainer(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        train(["train", *map(str, arguments)])
    assert isinstance(end.value.code, int)
    return end.value.code


def printed(capsys: pytest.CaptureFixture[str], schema: str) -> Any:
    """Return what was printed, which is what its schema says."""
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of(schema) or {}).validate(found)
    return found


def test_a_pilot_becomes_a_lock_and_a_run_under_it_is_sealed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    config = write_small_pilot(tmp_path)
    outcomes = rehearse(tmp_path, "run.target_step=60")
    assert all(outcome.passed for outcome in outcomes), [outcome.notes for outcome in outcomes]
    lock, run, pilot = tmp_path / "recipe.lock.json", tmp_path / "run", tmp_path / "out"

    capsys.readouterr()
    assert main(["freeze", str(pilot), "-o", str(lock), "--json"]) == 0
    printed(capsys, "output.freeze")
    assert main(["pilot", str(config), "--output", str(pilot), "--explain", "--json"]) == 0
    assert printed(capsys, "output.pilot-explain")["stages"][0]["standing"] == "passed"
    stages = {one.stage for one in read_lock(lock).pilots}
    assert {"smoke", "overfit", "acceptance", "stability", "resume"} <= stages
    data = f"data.path={read_lock(lock).volatile['data.path']}"
    capsys.readouterr()

    check = ["freeze", "--check", "--recipe", str(lock), "--config", str(config), "--set", data, "--json"]
    assert main([*check, "--set", "run.target_step=60"]) == 0
    assert printed(capsys, "output.freeze-check")["allowed"]
    assert main([*check, "--set", "run.target_step=70", "--set", "optimizer.learning_rate=2e-2"]) == 1
    found = {
        one["field"]: one["kind"]
        for one in printed(capsys, "output.freeze-check")["differences"]
        if one["held"]
    }
    assert found["run.target_step"] == "target"
    assert found["optimizer.learning_rate"] == "identity"

    assert call_trainer("--recipe", lock, "--run", run, "--set", "optimizer.learning_rate=2e-2") == 1
    assert not (run / "metrics.jsonl").exists()
    assert call_trainer("--recipe", lock, "--run", run) == 0
    capsys.readouterr()
    assert main(["reconcile", str(run), "--json"]) == 0
    assert "LG603" in json.loads(capsys.readouterr().out)["checked"]
    assert main(["summarize", str(run)]) == 0
    assert "against the budget of its lock" in capsys.readouterr().out
    for subject, word in ((run, "Against the budget"), (pilot, "GO: everything that was asked is kept")):
        page = tmp_path / "report.html"
        assert main(["report", str(subject), "-o", str(page)]) == 0
        assert word in page.read_text(encoding="utf-8")
        assert page.stat().st_size < 500_000
    assert main(["seal", str(run)]) == 0
