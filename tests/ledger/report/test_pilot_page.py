"""The page of a pilot: its gates and its runs, as they are now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.cli import main
from ledger.pilot.folder import find_stages, is_pilot
from ledger.pilot.kinds import STAGES
from ledger.records.parts import DataIdentities, LogPosition
from ledger.records.pilot import Gate, PilotRecord, PilotStage, StageRecord, StageRun
from ledger.storage.documents import write_document
from tests.ledger.report.reading import Page

Run = Callable[[str], Path]
HOSTILE = "<b>|`\u202e@team"


@pytest.fixture
def pilot(copy_of: Run, tmp_path: Path) -> Path:
    """A pilot with a finished stage, one whose gate was missed, and one that did not finish."""
    root = tmp_path / "trial"
    for stage, run, passed in (("overfit", "plain", True), ("stability", "skipping", False)):
        (root / stage).mkdir(parents=True)
        copy_of(run).rename(root / stage / "run")
        record_stage(root / stage, passed=passed)
    (root / "resume").mkdir()
    copy_of("interrupted").rename(root / "resume" / "run")
    (root / "configs").mkdir()
    return root


def record_stage(folder: Path, *, passed: bool) -> None:
    seq, chain = head_of(folder / "run")
    gates = [
        Gate(metric="final_loss", asked=HOSTILE, measured=0.25, passed=True),
        Gate(metric="loss_drop", asked=">= 1", measured=None, passed=passed),
    ]
    run = StageRun(
        path="run",
        run_id="r",
        purpose="stability",
        log_head=LogPosition(seq, chain),
        identity_sha256="0" * 64,
        verdict="passed",
        verdict_sha256="0" * 64,
    )
    record = StageRecord(
        stage=folder.name,
        fingerprint="0" * 64,
        inputs={},
        parts={},
        files=[],
        runs=[run, run.model_copy(update={"path": "../run"})],
        gates=gates,
        passed=passed,
    )
    write_document(folder / "stage.json", record, replace=False)


def head_of(run: Path) -> tuple[int, str]:
    last = (run / "metrics.jsonl").read_bytes().splitlines()[-1]
    return len((run / "metrics.jsonl").read_bytes().splitlines()) - 1, last[-66:-2].decode()


def test_a_pilot_is_shown_stage_by_stage(pilot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(pilot), "-o", str(tmp_path / "r.html")]) == 1
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    page = Page(html)
    assert page.problems == []
    order = [
        page.text.index(part) for part in ("overfit: passed", "stability: failed", "resume: not finished")
    ]
    assert order == sorted(order)
    assert "not measured" in page.texts
    assert html.count("<figure>") == 2 * 3
    assert "configs" not in page.text
    assert "\u202e" not in html
    capsys.readouterr()
    assert main(["report", str(pilot), "--markdown"]) == 1
    markdown = capsys.readouterr().out
    assert "- **MISSED** `loss_drop`: asked `>= 1`, measured not measured" in markdown
    for said in (page.text, markdown):
        assert "NO-GO" in said
        assert "stability: loss drop was not measured, asked >= 1" in said
        assert "a learning rate that is too high or too low" in said
        assert "A quiet pilot guarantees nothing" in said
    assert "resume is not finished" in page.text
    assert "<b>" not in markdown.replace("`` <b>\\x7c`\\u202e@team ``", "")


def test_a_folder_of_stages_is_a_pilot_and_a_run_is_none(pilot: Path, healthy_run: Run, tmp_path: Path):
    assert is_pilot(pilot)
    assert not is_pilot(healthy_run("plain"))
    assert not is_pilot(tmp_path / "nowhere")
    assert [stage.name for stage in find_stages(pilot)] == ["overfit", "stability", "resume"]
    assert find_stages(pilot)[0].runs.keys() == {"run"}  # the other one would leave the folder


def test_a_run_that_went_on_since_is_not_what_its_stage_rests_on(
    pilot: Path, capsys: pytest.CaptureFixture[str]
):
    for other in ("stability", "resume"):
        (pilot / other).rename(pilot.with_name(other))
    assert main(["report", str(pilot), "--markdown"]) == 3
    log = pilot / "overfit" / "run" / "metrics.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    assert main(["report", str(pilot), "--markdown"]) == 1
    assert "Its log is not the one that the stage's record names" in capsys.readouterr().out
    (pilot / "overfit" / "stage.json").write_text("{}")
    assert main(["report", str(pilot), "--markdown"]) == 1
    assert "unreadable" in capsys.readouterr().out


def list_stages(root: Path, *names: str, fingerprint: str = "0" * 64) -> None:
    stages = [PilotStage(stage=name, folder=name, fingerprint=fingerprint, passed=True) for name in names]
    record = PilotRecord(
        tool_version="0",
        created="2026-01-01T00:00:00.000000Z",
        name="trial",
        config={},
        classes={},
        identity_sha256="0" * 64,
        parts={},
        target_step=4,
        tokens_per_update=2,
        planned_tokens=8,
        data=DataIdentities(train="0" * 64, validation=None),
        stages=stages,
        passed=True,
    )
    write_document(root / "pilot.json", record, replace=True)


def test_a_stage_whose_folder_is_gone_leaves_the_decision_open(
    pilot: Path, capsys: pytest.CaptureFixture[str]
):
    record_all(pilot)
    assert main(["report", str(pilot), "--markdown"]) == 0
    (pilot / "validate" / "stage.json").unlink()
    (pilot / "validate").rmdir()
    assert main(["report", str(pilot), "--markdown"]) == 3
    said = capsys.readouterr().out
    assert "NOT YET" in said
    assert "`validate` was not run" in said


def record_all(pilot: Path) -> None:
    """Make every stage a passed one, each but `overfit` without a run."""
    gates = [Gate(metric="updates", asked="finite", measured=2, passed=True)]
    for name in set(STAGES) - {"overfit"}:
        folder = pilot / name
        folder.mkdir(exist_ok=True)
        record = StageRecord(
            stage=name, fingerprint="0" * 64, inputs={}, parts={}, files=[], runs=[], gates=gates, passed=True
        )
        write_document(folder / "stage.json", record, replace=True)
    list_stages(pilot, *STAGES)


def test_a_part_of_a_pilot_is_nowhere_a_go(pilot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    record_all(pilot)
    list_stages(pilot, *(name for name in STAGES if name != "smoke"))
    page = tmp_path / "r.html"
    assert main(["report", str(pilot), "-o", str(page)]) == 3
    assert capsys.readouterr().out == "incomplete\n"
    assert main(["report", str(pilot), "--markdown"]) == 3
    for said in (Page(page.read_text(encoding="utf-8")).text, capsys.readouterr().out):
        assert "NOT YET: something that a decision needs is not known" in said
        assert "GO: everything" not in said
        assert "is left out of pilot.stages" in said
    (pilot / "pilot.json").unlink()  # and nothing says which stages belong to it
    (pilot / "smoke").rename(tmp_path / "smoke")
    assert main(["report", str(pilot), "--markdown"]) == 3
    assert "`smoke` was not run" in capsys.readouterr().out


def test_a_record_of_another_stage_or_against_its_gates_is_no_evidence(
    pilot: Path, capsys: pytest.CaptureFixture[str]
):
    list_stages(pilot, "overfit", fingerprint="1" * 64)
    assert main(["report", str(pilot), "--markdown"]) == 1
    assert "that of another stage than the pilot names" in capsys.readouterr().out
    list_stages(pilot, "stability")
    path = pilot / "stability" / "stage.json"
    text = path.read_text(encoding="utf-8")
    assert text.count('"passed":false,"runs"') == 1
    path.write_text(text.replace('"passed":false,"runs"', '"passed":true,"runs"'), encoding="utf-8")
    assert main(["report", str(pilot), "--markdown"]) == 1
    assert "contradicts its gates" in capsys.readouterr().out


def test_watching_a_pilot_is_watching_the_run_that_it_is_at(pilot: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["watch", str(pilot), "--once"]) in (0, 3)
    assert capsys.readouterr().err.startswith(
        "resume: run, and no decision about the pilot: see ledger report "
    )
    (pilot.with_name("new") / "prepare-0123456789abcdef").mkdir(parents=True)
    assert main(["watch", str(pilot.with_name("new")), "--once"]) == 3
    assert "no stage of the pilot trains yet" in capsys.readouterr().err
