"""`ledger watch` as it is called, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit.following import RunFollower, RunView
from ledger.cli import main
from ledger.cli.watch import follow
from ledger.records.layout import LOG
from ledger.report.watching import BLOCKS, PLAIN, sparkline, view_lines
from ledger.storage.lock import RunLock
from tests.ledger.audit.editing import edit

Run = Callable[[str], Path]


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [("resumed", 0, "complete; step 6 of 6"), ("interrupted", 3, "crashed; step 4 of 6")],
)
def test_a_run_that_is_over_is_shown_in_one_line_and_ends_the_watching(
    name: str, code: int, says: str, healthy_run: Run, capsys: pytest.CaptureFixture[str]
):
    assert main(["watch", str(healthy_run(name))]) == code
    shown = capsys.readouterr().out
    assert shown.startswith(says)
    assert shown.count("\n") == 1


def test_a_session_that_failed_or_a_finding_makes_it_fail(copy_of: Run):
    run = copy_of("plain")
    edit(run, lambda events: events[-1].update(status="failed", error="out of memory"))
    assert main(["watch", str(run)]) == 1
    run.joinpath(LOG).write_bytes(run.joinpath(LOG).read_bytes().replace(b'"clipped":0', b'"clipped":1', 1))
    assert main(["watch", str(run), "--once"]) == 1


def test_once_shows_a_run_that_goes_on_and_ends(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("interrupted")
    with RunLock(run):
        assert main(["watch", str(run), "--once"]) == 3
    shown = capsys.readouterr().out
    assert "status    running" in shown
    assert "kept      checkpoints/step-00000003-s01 at step 3" in shown
    assert main(["watch", str(run), "--once", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["status"] == "crashed"


def test_it_goes_on_until_the_session_ends(copy_of: Run):
    run = copy_of("plain")
    lines = (run / LOG).read_bytes().splitlines(keepends=True)
    (run / LOG).write_bytes(lines[0])
    shown: list[RunView] = []
    waiting = iter(lines[1:])
    lock = RunLock(run)

    def sleep(_seconds: float) -> None:
        line = next(waiting, None)
        if line is None:
            lock.close()
            return
        with (run / LOG).open("ab") as log:
            log.write(line)

    view = follow(RunFollower(run), shown.append, pause=1.0, sleep=sleep)
    assert view.is_over
    assert view.outcome == "passed"
    assert [seen.step for seen in shown] == sorted(seen.step for seen in shown)
    assert len(shown) == len(lines) + 1


def test_hostile_names_cannot_steer_the_screen(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    edit(run, lambda events: events[0]["run"].update(name="\x1b[2J\n\u202e"))
    for options in ([], ["--once"], ["--once", "--json"]):
        assert main(["watch", str(run), *options]) == 0
        shown = capsys.readouterr().out
        assert not set("\x1b\u202e") & set(shown)
    assert all("\n" not in line for line in shown.splitlines())


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_an_interval_out_of_range_is_misuse(interval: str, healthy_run: Run):
    assert main(["watch", str(healthy_run("plain")), f"--interval={interval}"]) == 2


def test_what_is_no_run_is_refused(tmp_path: Path):
    assert main(["watch", str(tmp_path)]) == 3
    (tmp_path / "file").write_text("")
    assert main(["watch", str(tmp_path)]) == 1
    assert main(["watch", str(tmp_path / "nowhere")]) == 2


def _heed_interrupts() -> None:
    """Undo what a shell does to a process in the background: it makes it ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_a_signal_ends_it_cleanly_and_gives_the_cursor_back(number: int, code: int, copy_of: Run):
    run = copy_of("interrupted")
    screen, terminal = pty.openpty()
    command = [sys.executable, "-P", "-m", "ledger", "watch", str(run), "--interval", "0.05"]
    with RunLock(run):
        process = subprocess.Popen(
            command,
            stdout=terminal,
            stderr=terminal,
            env=os.environ | {"TERM": "xterm", "PYTHONUTF8": "1"},
            preexec_fn=_heed_interrupts,  # noqa: PLW1509 (no thread of ours runs there)
        )
        impatience = threading.Timer(60, process.kill)
        impatience.start()
        os.close(terminal)
        seen = b""
        while b"findings" not in seen:
            seen += os.read(screen, 4096)
        process.send_signal(number)
        while True:
            try:
                more = os.read(screen, 4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            seen += more
        assert process.wait() == code
        impatience.cancel()
    os.close(screen)
    assert b"Traceback" not in seen
    assert seen.rstrip().endswith(b"\x1b[?25h")
    assert BLOCKS[-1].encode() in seen


def test_a_sparkline_fits_and_follows_its_values():
    assert sparkline([], width=10, ramp=BLOCKS) == ""
    assert sparkline([1.0, 1.0], width=10, ramp=BLOCKS) == "▁▁"
    assert sparkline([float(value) for value in range(8)], width=8, ramp=BLOCKS) == BLOCKS
    assert sparkline([float(value) for value in range(600)], width=6, ramp=PLAIN) == PLAIN


def test_the_view_fits_a_narrow_screen(healthy_run: Run):
    view = RunFollower(healthy_run("resumed")).poll()
    for line in view_lines(view, width=40, has_blocks=False):
        assert len(line.text) <= 40 or not line.text.startswith(("loss", "          #"))
        assert not set(BLOCKS) & set(line.text)
