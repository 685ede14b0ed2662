"""What only a real process shows: encodings, closed pipes, the time that help takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import __version__
from ledger.cli import main
from tests.ledger.audit.editing import edit

Run = Callable[[str], Path]


def ledger(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "ledger", *arguments],
        capture_output=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        {"NO_COLOR": "1", "TERM": "dumb"},
        {"COLUMNS": "0"},
        {"COLUMNS": "10"},
    ],
)
def test_output_survives_its_surroundings(environment: dict[str, str], copy_of: Run):
    run = copy_of("interrupted")
    edit(run, lambda events: events[0]["run"].update(name="naïve — 名前"))
    done = ledger("summarize", str(run), **environment)
    assert done.returncode == 3, done.stderr  # no end is on record
    assert done.stderr == b""
    assert b"\x1b" not in done.stdout
    assert b"latest session, number 1" in done.stdout


def test_a_reader_that_goes_away_ends_it_quietly():
    command = [sys.executable, "-P", "-m", "ledger", "explain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_whoever_calls_it_keeps_the_signals_of_the_process(capsys: pytest.CaptureFixture[str]):
    before = signal.getsignal(signal.SIGPIPE)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGPIPE) == before == signal.SIG_IGN
    assert capsys.readouterr().out == f"ledger {__version__}\n"


def test_help_imports_nothing_heavy():
    code = "import sys, ledger.cli; ledger.cli.main(['--help']); print(*sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    heavy = {"numpy", "pydantic", "msgspec", "torch", "ledger.audit"}
    assert not heavy & set(done.stderr.split())


def test_summarize_imports_none_of_the_rules_that_it_does_not_check():
    code = "import sys, ledger.cli.summarize; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    others = {f"ledger.audit.{name}" for name in ("reconciliation", "comparison", "listing", "checkpoints")}
    loaded = set(done.stdout.split())
    assert "ledger.audit.summary" in loaded
    assert not others & loaded
