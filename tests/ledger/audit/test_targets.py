"""LG602: from one session to the next the target only rises."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ledger.audit import reconcile
from ledger.recorder import starting
from ledger.records.layout import LOG
from tests.ledger.audit.healthy import SMALL, killed
from tests.support.audited import assert_passed
from tests.support.toy import run_toy

HIGHER = dataclasses.replace(SMALL, target_step=9)


def test_a_target_lowered_to_where_the_run_stands_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = tmp_path / "run"
    killed(run, HIGHER, at="microbatch", time=8)
    monkeypatch.setattr(starting, "_refuse_lower_target", lambda *_: None)
    run_toy(run, SMALL, start="auto")
    [found] = reconcile(run).findings
    assert (found.rule, found.severity, found.where) == ("LG602", "error", "session 2")
    assert "lowers the target from step 9 to 6" in found.message


def test_a_raise_that_was_taken_back_by_beginning_again_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = tmp_path / "run"
    run_toy(run, SMALL)
    killed(run, HIGHER, at="microbatch", time=2, start="auto")
    monkeypatch.setattr(starting, "_refuse_lower_target", lambda *_: None)
    run_toy(run, SMALL, start="restart")
    assert [(found.rule, found.where) for found in reconcile(run).findings] == [("LG602", "session 3")]


def test_a_start_that_was_killed_before_it_amended_its_target_lowers_nothing(tmp_path: Path):
    run = tmp_path / "run"
    run_toy(run, SMALL)
    killed(run, HIGHER, at="microbatch", time=2, start="auto")
    killed(run, HIGHER, at="microbatch", start="restart")
    lines = (run / LOG).read_bytes().splitlines(keepends=True)
    amended = max(index for index, line in enumerate(lines) if line.startswith(b'{"event":"amendment"'))
    (run / LOG).write_bytes(b"".join(lines[:amended]))
    run_toy(run, SMALL, start="restart")
    assert_passed(run)
