"""`ledger pilot`: what it says at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.cli import main, pilot
from ledger.pilot import Plan, StageOutcome


def everything_passes(plan: Plan, **_options: bool) -> Iterator[StageOutcome]:
    for name in plan.names:
        yield StageOutcome(stage=name, folder=plan.root / name, gates=[], notes=[], passed=True, reused=False)


@pytest.mark.parametrize(
    ("stages", "decision"), [("null", "\nGO: "), ("[prepare]", "\nNOT YET: "), ("[stability]", "\nNOT YET: ")]
)
def test_a_part_of_a_pilot_is_no_go(
    stages: str,
    decision: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(pilot, "run_pilot", everything_passes)
    config = tmp_path / "run.yaml"
    config.write_text(f"pilot: {{name: part, stages: {stages}}}\n", encoding="utf-8")
    assert main(["pilot", str(config), "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    assert decision in said
    assert ("pilot.stages leaves out smoke, overfit" in said) == (stages != "null")
