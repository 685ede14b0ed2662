from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile, summarize
from tests.ledger.audit.editing import change_nothing, edit
from tests.ledger.audit.healthy import HEALTHY, INCOMPLETE, WARNED


@pytest.mark.parametrize("name", HEALTHY)
def test_an_honest_run_is_never_called_broken(name: str, healthy_run: Callable[[str], Path]):
    verdict = reconcile(healthy_run(name), rehash=True)
    found = {finding.rule for finding in verdict.findings if finding.severity != "hint"}
    assert found == INCOMPLETE.get(name, set()) | WARNED.get(name, set()), verdict.findings
    assert verdict.verdict == ("incomplete" if name in INCOMPLETE else "passed")
    assert verdict.finding_counts["error"] == 0


@pytest.mark.parametrize("name", HEALTHY)
def test_the_summary_of_an_honest_run_has_no_findings(name: str, healthy_run: Callable[[str], Path]):
    assert summarize(healthy_run(name)).findings == []


def test_the_editor_itself_changes_nothing_that_a_rule_sees(copy_of: Callable[[str], Path]):
    run = copy_of("resumed")
    edit(run, change_nothing)
    verdict = reconcile(run, rehash=True)
    assert verdict.findings == []
    assert verdict.verdict == "passed"
