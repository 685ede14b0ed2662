"""Standard streams that are full or closed: one line and exit code 4, or a quiet end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ledger.cli.test_process import Run

OTHERS = [
    "trainer --help",
    "ledger explain",
    "ledger schema ledger.run",
    "ledger summarize {run} --json",
    "ledger verify {run}",
    "ledger diff {run} {run}",
    "ledger reconcile --help",
    "ledger train --help",
    "data_prep --help",
]
COMMANDS = [
    "ledger --help",
    "ledger reconcile {run}",
    *(pytest.param(command, marks=pytest.mark.slow) for command in OTHERS),
]


def shell(line: str) -> subprocess.CompletedProcess[str]:
    command = f'"{sys.executable}" -P -m {line}'
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_output_is_one_line_and_exit_code_4(command: str, copy_of: Run):
    done = shell(f"{command.format(run=copy_of('interrupted'))} >/dev/full")
    assert done.returncode == 4, done.stderr
    assert done.stderr.startswith("error: standard output: cannot be written: No space left on device")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_output_ends_quietly(command: str, copy_of: Run):
    done = shell(f"{command.format(run=copy_of('interrupted'))} >&-")
    assert (done.returncode, done.stderr) in [(0, ""), (3, "")]


@pytest.mark.parametrize(
    "module",
    [
        "ledger explain",
        pytest.param("trainer train --config", marks=pytest.mark.slow),
        pytest.param("data_prep prepare --output o --config", marks=pytest.mark.slow),
    ],
)
def test_an_error_cannot_steer_a_terminal_and_needs_no_output(module: str):
    done = shell(f"{module} \"$(printf 'no\\033such')\"")
    assert done.returncode == 2, done.stderr
    assert "\x1b" not in done.stderr
    assert "no\\x1bsuch" in done.stderr
    assert shell(f"{module} nothing >&- 2>&-").returncode == 2
