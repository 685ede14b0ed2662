"""Whatever runs, files and records are called, a terminal shows our lines and no others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.cli import main
from tests.ledger.audit.conftest import copy_of, healthy_run
from tests.ledger.audit.editing import edit, of_kind

__all__ = ["copy_of", "healthy_run"]


def test_no_name_can_begin_a_line_of_its_own(
    copy_of: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
):
    fake = "toy\nrun x: PASSED"
    run = copy_of("resumed")
    edit(run, lambda events: of_kind(events, "session_start")[0]["run"].update(name=fake))
    run = run.rename(run.with_name(fake))
    (run / fake).write_text("")
    for arguments in (
        ["summarize"],
        ["reconcile"],
        ["verify"],
        ["list"],
        ["seal"],
        ["doctor"],
        ["watch", "--once"],
    ):
        main([arguments[0], str(run), *arguments[1:]])
    main(["diff", str(run), str(run)])
    main(["verify", str(run / fake)])
    printed = capsys.readouterr()
    assert r"\nrun x: PASSED" in printed.out
    assert r"\nrun x: PASSED" in printed.err
    assert not [line for text in printed for line in text.splitlines() if line.startswith("run x")]
