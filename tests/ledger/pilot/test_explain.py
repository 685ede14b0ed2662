"""Why a stage would run: how it differs from the nearest that is there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from ledger.pilot import Plan
from ledger.pilot.explain import Explanation, explain_pilot
from ledger.pilot.fingerprint import Fingerprint
from ledger.records.pilot import StageRecord
from ledger.storage.documents import write_document


def trial(**inputs: int) -> Fingerprint:
    return Fingerprint(stage="trial", inputs=inputs, parts={"loom": 1})


def record(root: Path, fingerprint: Fingerprint, *, passed: bool = True) -> None:
    folder = root / fingerprint.folder
    folder.mkdir(parents=True)
    document = StageRecord(
        stage=fingerprint.stage,
        fingerprint=fingerprint.sha256,
        inputs=dict(fingerprint.inputs),
        parts=dict(fingerprint.parts),
        files=[],
        runs=[],
        gates=[],
        passed=passed,
    )
    write_document(folder / "stage.json", document, replace=False)


def explained(root: Path, fingerprint: Fingerprint) -> Explanation:
    plan = SimpleNamespace(root=root, names=["trial"], fingerprints=lambda: {"trial": fingerprint})
    (found,) = explain_pilot(cast("Plan", plan))
    return found


def test_the_nearest_recorded_stage_says_what_changed(tmp_path: Path):
    record(tmp_path, trial(rate=1, width=8))
    record(tmp_path, trial(rate=2, width=16))
    found = explained(tmp_path, trial(rate=1, width=9))
    assert found.nearest == trial(rate=1, width=8).folder
    assert list(found.lines())[1:] == [
        f"  differs from {trial(rate=1, width=8).folder} in",
        "    width: 8 -> 9",
    ]


def test_a_new_version_of_a_part_is_named(tmp_path: Path):
    record(tmp_path, trial(rate=1))
    newer = Fingerprint(stage="trial", inputs={"rate": 1}, parts={"loom": 2})
    assert [str(change) for change in explained(tmp_path, newer).changes] == ["version of loom: 1 -> 2"]


def test_what_is_there_is_said_to_be_there(tmp_path: Path):
    record(tmp_path, trial(rate=1))
    record(tmp_path, trial(rate=2), passed=False)
    (tmp_path / trial(rate=3).folder).mkdir()
    record(tmp_path, trial(rate=4))
    (tmp_path / trial(rate=4).folder / "stage.json").write_text("{}")
    standings = [explained(tmp_path, trial(rate=rate)).standing for rate in (1, 2, 3, 4)]
    assert standings == ["passed", "failed", "begun", "unreadable"]
    assert explained(tmp_path / "nowhere", trial(rate=1)).standing == "absent"
