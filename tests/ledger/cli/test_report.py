"""`ledger report` as it is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.cli import main
from ledger.report.page import BEGINNING
from tests.support.trees import snapshot

Run = Callable[[str], Path]


@pytest.mark.parametrize(("name", "code"), [("plain", 0), ("interrupted", 3)])
def test_the_page_goes_where_it_is_asked_for_and_the_run_is_not_touched(
    name: str, code: int, copy_of: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = copy_of(name)
    before = snapshot(run)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["report", str(run)]) == code
    assert main(["report", str(run)]) == code
    assert (tmp_path / "here" / "report.html").read_text(encoding="utf-8").startswith(BEGINNING)
    assert snapshot(run) == before


def test_a_run_that_fails_has_a_page_and_the_exit_code_of_its_verdict(copy_of: Run, tmp_path: Path):
    run = copy_of("plain")
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"clipped":0', b'"clipped":1', 1))
    assert main(["report", str(run), "-o", str(tmp_path / "r.html")]) == 1
    assert "FAILED" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_what_is_no_report_is_refused_before_the_run_is_read(
    healthy_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "notes.html").write_text("mine")
    assert main(["report", str(healthy_run("plain")), "-o", str(tmp_path / "notes.html")]) == 1
    assert "not replaced" in capsys.readouterr().err
    assert (tmp_path / "notes.html").read_text() == "mine"


def test_markdown_goes_to_standard_output(healthy_run: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["report", str(healthy_run("resumed")), "--markdown"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("## Run `toy`: passed\n")
    assert "| updates (step) | 6 | 2 | 8 |" in shown
    assert "| 1 | fresh | 0 to 5 | no end | up to step 3 |" in shown


def test_markdown_writes_no_file(healthy_run: Run, tmp_path: Path):
    assert main(["report", str(healthy_run("plain")), "--markdown", "-o", str(tmp_path / "r.html")]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("path", "code"), [("", 2), ("nowhere", 2), (".", 3), ("other", 1)])
def test_what_is_no_run_and_no_pilot_is_refused(
    path: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    if path == "other":
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "file").write_text("")
    assert main(["report", path]) == code
    assert not (tmp_path / "report.html").exists()
