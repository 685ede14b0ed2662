"""A second signal may end a process at any line of the recorder: what is on record is true all the same."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ledger
from ledger.audit import reconcile
from ledger.storage.filesystem import OS
from tests.support.faults import FaultFileSystem, Snapshot
from tests.support.faults_checks import check_audit, check_documents, check_passed
from tests.support.faults_session import SETTINGS, session
from tests.support.faults_tally import TALLY
from tests.support.thorough import IS_THOROUGH
from tests.support.toy import train

ROOT = Path(ledger.__file__).parent
WATCHED = (str(ROOT / "recorder"), str(ROOT / "storage" / "log.py"), str(ROOT / "storage" / "atomic.py"))
EVERYTHING = dataclasses.replace(
    SETTINGS, accumulation=2, interval=2, evaluate_every=2, checkpoint_interval=2
)


@contextmanager
def interrupted_at(number: int) -> Iterator[list[str]]:
    """Raise `KeyboardInterrupt` at the line of that number which the recorder executes; yields the lines."""
    lines: list[str] = []

    def look(frame: FrameType, event: str, _argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        if event == "line":
            lines.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}")
            if len(lines) - 1 == number:
                sys.settrace(None)
                raise KeyboardInterrupt
        return look

    sys.settrace(look)
    try:
        yield lines
    finally:
        sys.settrace(None)


def run_whole(place: Path, settings: Any) -> None:
    session(place / "run", FaultFileSystem(), train, settings=settings)


def break_at(number: int, place: Path, settings: Any) -> Iterator[str]:
    """End a process at one line, look at its records, and go on from them."""
    place.mkdir()
    child = os.fork()  # what it had open ends with it
    if child == 0:
        with suppress(BaseException), interrupted_at(number):
            run_whole(place, settings)
        os._exit(0)
    os.waitpid(child, 0)
    if (place / "run").exists():
        after = Snapshot.of(place / "run")
        yield from check_documents(place / "run", Snapshot(), after)
        yield from check_audit(place / "run", after)
    session(place / "run", OS, train, settings=settings)
    yield from check_passed(place / "run")


def break_everywhere(place: Path, settings: Any, *, first: int, every: int) -> list[str]:
    (place / "whole").mkdir()
    with interrupted_at(-1) as lines:
        run_whole(place / "whole", settings)
    assert len(lines) > 1_000
    found = []
    for number in range(first, len(lines), every):
        problems = [
            f"{lines[number]}: {problem}" for problem in break_at(number, place / str(number), settings)
        ]
        TALLY.add("a whole run", "second signal, any line", problems=problems)
        found += problems
    return found


def test_a_second_signal_at_some_line_leaves_true_records(tmp_path):
    assert not break_everywhere(tmp_path, EVERYTHING, first=97, every=1_201)


@pytest.mark.slow
@pytest.mark.parametrize("evidence", [True, False])
def test_a_second_signal_at_any_line_leaves_true_records(evidence, tmp_path):
    settings = dataclasses.replace(EVERYTHING, evidence=evidence)
    problems = break_everywhere(tmp_path, settings, first=int(evidence), every=29 if IS_THOROUGH else 113)
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])


def test_an_undisturbed_run_is_complete(tmp_path):
    tmp_path.mkdir(exist_ok=True)
    run_whole(tmp_path, EVERYTHING)
    assert reconcile(tmp_path / "run").verdict == "passed"
