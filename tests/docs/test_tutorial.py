"""Every command of the tutorial runs as it stands, in order, and ends as the page says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/tutorial/first-run.md"


def commands() -> list[tuple[str, str]]:
    """Return (command, the error it is said to end with, or nothing) of each command line on the page."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    found = []
    for block in blocks:
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, rest = part.partition("\n")
            found.append((line, rest.strip()))
    return found


def require_fragments(said: str, really: str) -> None:
    """Make sure that what the page shows is the real text, shortened at each … only."""
    place = 0
    for fragment in filter(None, (part.strip() for part in said.split("…"))):
        found = really.find(fragment, place)
        assert found >= 0, f"{fragment!r} does not follow in: {really}"
        place = found + len(fragment)


def test_a_text_that_is_not_the_real_one_is_noticed():
    require_fragments(
        "error: … 1 setting … 0.1 …", "error: runs/first: 1 setting(s) differ: 0.01 -> 0.1; expected"
    )
    with pytest.raises(AssertionError, match="another recipe"):
        require_fragments("error: … another recipe …", "error: 1 setting(s) differ")


def test_the_page_holds_the_commands_that_a_first_run_needs():
    words = {command.split()[1] for command, _ in commands() if command.startswith("ledger ")}
    assert words == {"prepare", "verify", "train", "summarize", "reconcile", "pilot"}


@pytest.mark.slow
def test_the_commands_run_as_they_stand(tmp_path: Path):
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    for command, said in commands():
        if not command.startswith("ledger ") or command.startswith("ledger pilot"):
            continue  # the environment is there already; the pilot has tests of its own
        words = [sys.executable, "-P", "-m", *shlex.split(command)]
        done = subprocess.run(
            words, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
        )
        if said.startswith("error:"):
            assert done.returncode == 1, command
            require_fragments(said, done.stderr)
        else:
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
