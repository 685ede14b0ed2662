"""What the command line says of itself, and what it says where something was typed wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ledger.cli.lazy import COMMANDS


def ledger(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "ledger", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, env=os.environ | {"COLUMNS": "100"}
    )


USUAL = ("train", "reconcile", "data show")


@pytest.mark.parametrize(
    "command",
    [*USUAL, *(pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS if name not in USUAL)],
)
def test_help_names_the_command_as_it_was_typed_and_no_types_of_python(command: str):
    done = ledger(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: ledger {command} ")
    assert "<" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "near"),
    [(("reconcile", "r", "--contrl", "x"), "--control"), (("train", "--confg", "x"), "--config")],
)
def test_an_unknown_flag_is_answered_with_the_nearest(arguments: tuple[str, ...], near: str):
    done = ledger(*arguments)
    assert done.returncode == 2
    assert near in done.stderr


def test_a_path_that_looks_like_a_flag_is_answered_with_two_dashes(tmp_path: Path):
    (tmp_path / "-run").mkdir()
    done = ledger("reconcile", "-run", cwd=tmp_path)
    assert done.returncode == 2
    assert "ledger reconcile -- -run" in done.stderr
    assert "behind a lone --" not in ledger("reconcile", "--", "-run", cwd=tmp_path).stderr


def test_what_a_folder_is_or_should_be_is_said(tmp_path: Path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/metadata.json").write_text("{}")
    done = ledger("verify", "empty", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        3, "error: empty: is empty: no run has begun in it; expected a run folder (check the path)\n"
    )  # fmt: skip
    done = ledger("reconcile", "corpus", cwd=tmp_path)
    assert done.returncode == 2
    assert "is a dataset" in done.stderr
    assert "ledger verify corpus" in done.stderr
