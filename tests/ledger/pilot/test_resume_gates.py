"""What a pilot asks of its resumed run, and that it is not silent where no bar moves."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledger.cli import pilot as command
from ledger.pilot import Moment
from ledger.pilot.gates import judge
from ledger.pilot.metrics import Evidence

COMPARED = ("same_start", "same_data", "same_loss", "same_parameters")


def gates(account: dict[str, Any]) -> dict[str, tuple[object, bool]]:
    verdict = cast("Any", SimpleNamespace(account=account, findings=[], checked=[], not_checked={}))
    found = [gate for gate in judge("resume", None, Evidence(verdict=verdict)) if gate.metric in COMPARED]
    assert {gate.asked for gate in found} == {"bitwise"}
    return {gate.metric: (gate.measured, gate.passed) for gate in found}


def test_start_data_loss_and_parameters_must_agree_bit_for_bit():
    found = {"LG801": "bitwise", "LG802": "bitwise", "LG803": "within tolerance", "LG804": "differs"}
    assert gates({"equivalence": found}) == {
        "same_start": ("bitwise", True),
        "same_data": ("bitwise", True),
        "same_loss": ("within tolerance", False),
        "same_parameters": ("differs", False),
    }


@pytest.mark.parametrize("account", [{}, {"equivalence": {}}])
def test_what_was_not_compared_does_not_pass(account: dict[str, Any]):
    found = gates(account)
    assert set(found) == set(COMPARED)
    assert not any(passed for _, passed in found.values())


def test_without_a_terminal_a_line_says_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(command, "QUIET_SECONDS", 0.0)
    (tmp_path / "metrics.jsonl").write_text('{"step":7}\n')
    (tmp_path / "run.json").write_text('{"target_step":40}')
    with command._Bars() as bars:
        bars.report(Moment(stage="stability", phase="training", run_dir=tmp_path))
    assert "stability" in (said := capsys.readouterr().err)
    assert "step 7/40" in said
