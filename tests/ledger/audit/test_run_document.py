"""What the log says of the whole run, where no run.json could hold it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile
from tests.ledger.audit.editing import edit


@pytest.mark.parametrize("field", ["tokens_per_microbatch", "accumulation"])
def test_a_plan_beyond_what_a_record_holds_is_a_finding(copy_of: Callable[[str], Path], field: str):
    run = copy_of("plain")
    edit(run, lambda events: events[0].update({field: 2**53 - 1}))
    verdict = reconcile(run)
    assert verdict.verdict == "failed"
    (found,) = [finding for finding in verdict.findings if finding.rule == "LG108"]
    assert "more tokens than a record can hold" in found.message
