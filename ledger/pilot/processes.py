"""The trainer and the data preparation as processes of their own, watched from outside through their records.

A subprocess is what makes killing and resuming real. `-P` keeps a folder named `trainer` in the user's directory
from being run in our trainer's place.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from ledger.errors import LedgerError, LockedError
from ledger.records.layout import LOG, RUN

__all__ = [
    "StageProcessError",
    "ask_module",
    "last_logged_step",
    "planned_steps",
    "run_module",
    "run_until_step",
]

_POLL_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 0.5
_TAIL_BYTES: Final = 1 << 18
_EXCERPT_LINES: Final = 12


class StageProcessError(LedgerError):
    """A stage's process ended with an error; the message carries the end of what it said."""


class _Totals(msgspec.Struct):
    """What is read of a line while a run is watched; the audit reads the rest, strictly."""

    step: int


class _Target(msgspec.Struct):
    """What is read of run.json while a run is watched."""

    target_step: int


def ask_module(module: str, arguments: Sequence[str]) -> Any:
    """Return what `python -P -m MODULE …` prints as JSON.

    Raises:
        StageProcessError: it ended with another exit code than 0; the error carries that code.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise _failure(module, done.returncode, done.stderr.decode(errors="replace"))
    return json.loads(done.stdout)


def run_module(
    module: str,
    arguments: Sequence[str],
    *,
    log: Path,
    watch: Callable[[], None] = lambda: None,
    waiting: Callable[[str], None] = lambda _: None,
) -> None:
    """Run `python -P -m MODULE …` to its end, its output going to the file `log`; call `watch` now and then.

    Where another process holds what it would write (one that a killed pilot left behind), `waiting` is told for whom,
    and it is tried again until that one ends.

    Raises:
        StageProcessError: it ended with another exit code than 0; the error carries that code.
    """
    while (code := _run(module, arguments, log=log, watch=watch)) == LockedError.exit_code:
        waiting(_failure(module, code, _end_of(log)).problem)
        time.sleep(_PATIENCE_SECONDS)
    if code != 0:
        raise _failure(module, code, _end_of(log), log=log)


def _run(module: str, arguments: Sequence[str], *, log: Path, watch: Callable[[], None]) -> int:
    with _started(module, arguments, log=log) as process:
        while process.poll() is None:
            watch()
            time.sleep(_POLL_SECONDS)
    watch()
    return process.returncode


def run_until_step(
    module: str,
    arguments: Sequence[str],
    *,
    run_dir: Path,
    step: int,
    log: Path,
    watch: Callable[[], None] = lambda: None,
) -> int:
    """Run a trainer and kill it with SIGKILL as soon as its log holds update `step`; return the step last logged.

    Raises:
        StageProcessError: it ended before it could be killed.
    """
    with _started(module, arguments, log=log) as process:
        while process.poll() is None:
            watch()
            if last_logged_step(run_dir) >= step:
                process.kill()
                process.wait()
                return last_logged_step(run_dir)
            time.sleep(_POLL_SECONDS)
    if process.returncode != 0:
        raise _failure(module, process.returncode, _end_of(log), log=log)
    raise StageProcessError(
        f"the run ended before it could be killed at step {step}",
        path=run_dir,
        expected="a run long enough to be interrupted in its middle",
        advice="raise run.target_step, or lower kill_after_step, and remove this folder",
    )


def last_logged_step(run_dir: Path) -> int:
    """Return the step of the last whole line of a run's log as it stands now; 0 where there is none."""
    try:
        with (run_dir / LOG).open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return 0
    for line in reversed(lines[:-1]):
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(line, type=_Totals).step
    return 0


def planned_steps(run_dir: Path) -> int | None:
    """Return the target step that a run's run.json states as it stands now; None while there is none."""
    try:
        return msgspec.json.decode((run_dir / RUN).read_bytes(), type=_Target).target_step
    except (FileNotFoundError, msgspec.DecodeError):
        return None


@contextmanager
def _started(module: str, arguments: Sequence[str], *, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = _popen(module, arguments, output)
        try:
            yield process
        finally:
            if process.poll() is None:  # an error or a signal ended the watching: never leave a run behind
                process.terminate()
                process.wait()


def _popen(module: str, arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", module, *arguments]
    output.write(f"$ {' '.join(command[3:])}\n".encode())
    output.flush()
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def _failure(module: str, code: int, output: str, *, log: Path | None = None) -> StageProcessError:
    lines = output.splitlines()[-_EXCERPT_LINES:]
    said = next((line for line in reversed(lines) if line.startswith("error:")), lines[-1] if lines else "")
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    error = StageProcessError(
        f"{module} {how}: {said.removeprefix('error: ')}",
        advice=None if log is None else f"its whole output is in {log}",
    )
    error.exit_code = 128 - code if code < 0 else code
    return error
