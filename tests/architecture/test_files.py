"""What holds for every file of the project."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ledger import errors

ROOT = Path(__file__).resolve().parents[2]
MAX_LINES = 400


def project_files() -> list[Path]:
    """Return every file that is, or would be, committed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("the files of the project are listed by git, which is not here")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="ignore")


def test_no_file_names_a_package_registry_or_an_installation_source():
    pattern = re.compile(
        r"(py" r"pi\.(org|io)|python" r"hosted\.|download\.py" r"torch|--(extra-)?index-url|fin[d]-links)"
    )
    found = [str(path.relative_to(ROOT)) for path in project_files() if pattern.search(text_of(path))]
    assert found == []


def test_no_file_names_a_place_on_somebody_s_machine():
    pattern = re.compile(r"(?<![\w.])/(home|root|work|Users)/\w")
    found = [str(path.relative_to(ROOT)) for path in project_files() if pattern.search(text_of(path))]
    assert found == []


def test_constraints_pin_exact_versions_for_every_kind_of_machine():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", pin) for pin in pins)
    assert "torch==2.13.0" in pins


def test_every_exit_code_is_documented():
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    classes = [getattr(errors, name) for name in errors.__all__]
    undocumented = {cls.exit_code for cls in classes if f"| {cls.exit_code} |" not in page}
    assert undocumented == set()


def test_every_error_is_named_like_one():
    assert all(name.endswith("Error") for name in errors.__all__)


@pytest.mark.parametrize("package", ["ledger", "trainer", "data_prep"])
def test_modules_stay_short_enough_to_read(package: str):
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / package).rglob("*.py")
        if (lines := len(text_of(path).splitlines())) > MAX_LINES
    }
    assert long == {}


def test_links_between_pages_lead_somewhere():
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in (ROOT / "docs").rglob("*.md")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text_of(page))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    index = text_of(folder / "index.md")
    assert [page.name for page in sorted(folder.glob("0*.md")) if page.name not in index] == []
