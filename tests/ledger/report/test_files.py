"""Where a report goes, and what it never replaces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.errors import LedgerError, RefusedError, UnsafeError, UsageError
from ledger.report.files import write_report
from ledger.report.page import page

OLDER, NEWER = (page(name, tool_version="0") for name in ("older", "newer"))


def test_a_report_replaces_an_older_one(tmp_path: Path):
    assert write_report(tmp_path / "r.html", OLDER) == tmp_path / "r.html"
    write_report(tmp_path / "r.html", NEWER)
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == NEWER
    assert [path.name for path in tmp_path.iterdir()] == ["r.html"]


@pytest.mark.parametrize("content", ["", "<!DOCTYPE html>", "my notes", OLDER[1:]])
def test_anything_else_is_not_replaced(content: str, tmp_path: Path):
    (tmp_path / "r.html").write_text(content, encoding="utf-8")
    with pytest.raises(RefusedError, match="no report stands there"):
        write_report(tmp_path / "r.html", NEWER)
    assert (tmp_path / "r.html").read_text(encoding="utf-8") == content


def test_a_link_is_not_followed(tmp_path: Path):
    (tmp_path / "r.html").write_text(OLDER, encoding="utf-8")
    (tmp_path / "link.html").symlink_to("r.html")
    with pytest.raises(UnsafeError):
        write_report(tmp_path / "link.html", NEWER)


@pytest.mark.parametrize("place", ["r.html", "checkpoints/r.html", "logs/r.html", "exports/r.html"])
def test_no_report_is_written_into_a_run(place: str, copy_of: Callable[[str], Path], tmp_path: Path):
    run = copy_of("sealed")
    with pytest.raises(RefusedError, match="does not belong into a run"):
        write_report(run / place, NEWER)
    (tmp_path / "other").symlink_to((run / place).parent)
    with pytest.raises(RefusedError, match="does not belong into a run"):
        write_report(tmp_path / "other" / "r.html", NEWER)
    assert not (run / place).exists()


def test_no_report_is_written_into_a_dataset(copy_of: Callable[[str], Path]):
    data = copy_of("on_dataset").with_name("on_dataset-data")
    with pytest.raises(RefusedError, match="a dataset"):
        write_report(data / "r.html", NEWER)


def test_a_project_whose_files_have_common_names_is_no_run(tmp_path: Path):
    (tmp_path / "run.json").mkdir()
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "metadata.json").write_text("{}")
    (tmp_path / "reports").mkdir()
    assert write_report(tmp_path / "reports" / "r.html", NEWER).exists()


@pytest.mark.parametrize("place", ["", "nowhere/r.html"])
def test_a_place_that_does_not_exist_is_misuse(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError):
        write_report(place, NEWER)


def test_a_folder_in_its_place_is_refused(tmp_path: Path):
    (tmp_path / "r.html").mkdir()
    with pytest.raises(LedgerError):
        write_report(tmp_path / "r.html", NEWER)
