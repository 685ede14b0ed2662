"""`ledger pilot`: what it says at its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest

from ledger.cli import main, pilot
from ledger.pilot import Plan, StageOutcome
from ledger.report.schemas import schema_of
from tests.support.faults_pilot import LONG_RUN


def everything_passes(plan: Plan, **_options: bool) -> Iterator[StageOutcome]:
    for name in plan.names:
        yield StageOutcome(stage=name, folder=plan.root / name, gates=[], notes=[], passed=True, reused=False)


@pytest.mark.parametrize(
    ("stages", "decision", "code"),
    [("null", "\nGO: ", 0), ("[prepare]", "\nNOT YET: ", 3), ("[stability]", "\nNOT YET: ", 3)],
)
def test_a_part_of_a_pilot_is_no_go(
    stages: str,
    decision: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(pilot, "run_pilot", everything_passes)
    config = tmp_path / "run.yaml"
    config.write_text(f"pilot: {{name: part, stages: {stages}}}\n", encoding="utf-8")
    command = ["pilot", str(config), "--output", str(tmp_path / "out")]
    assert main(command) == code
    said = capsys.readouterr().out
    assert decision in said
    assert ("GO: everything" in said) == (code == 0)
    assert ("pilot.stages leaves out smoke, overfit" in said) == (stages != "null")
    assert main([*command, "--json"]) == code
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of("output.pilot") or {}).validate(found)
    assert found["verdict"] == ("passed" if code == 0 else "incomplete")
    assert ("smoke" in found["left_out"]) == (code == 3)


def test_a_dataset_that_is_not_there_leaves_no_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    long_run = SimpleNamespace(**vars(LONG_RUN), datasets=[tmp_path / "gone"])
    monkeypatch.setattr(Plan, "resolution", SimpleNamespace(long_run=long_run))
    config = tmp_path / "run.yaml"
    config.write_text("pilot: {name: part}\n", encoding="utf-8")
    assert main(["pilot", str(config), "--output", str(tmp_path / "pilots" / "out")]) == 3
    assert "there is no prepared dataset" in capsys.readouterr().err
    assert not (tmp_path / "pilots").exists()
