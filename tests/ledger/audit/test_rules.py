from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import RULES, reconcile
from tests.ledger.audit.cases import CASES, Case
from tests.ledger.audit.healthy import HEALTHY, INCOMPLETE, WARNED

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.name}")
def test_a_broken_run_has_exactly_the_findings_it_must_have(
    case: Case, copy_of: Callable[[str], Path], healthy_run: Callable[[str], Path]
):
    run = copy_of(case.run)
    case.do(run)
    control = None if case.control is None else healthy_run(case.control)
    data = run.with_name(f"{case.run}-data")
    verdict = reconcile(run, rehash=case.rehash, control=control, data=data if data.exists() else None)
    usual = INCOMPLETE.get(case.run, set()) | WARNED.get(case.run, set())
    found = {finding.rule for finding in verdict.findings}
    assert found - usual == ({case.rule} | case.companions) - usual, verdict.findings
    assert all(finding.severity in RULES[finding.rule].severities for finding in verdict.findings)
    own = [finding for finding in verdict.findings if finding.rule == case.rule]
    assert own[0].severity == case.severity, own
    assert own[0].where
    assert own[0].message
    if case.severity == "error":
        assert verdict.verdict == "failed"
    elif case.severity == "missing" and not verdict.finding_counts["error"]:
        assert verdict.verdict == "incomplete"


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_page_and_a_case_that_breaks_it(rule: str):
    entry = RULES[rule]
    assert entry.id == rule
    assert all(len(text) > 20 for text in (entry.meaning, entry.causes, entry.advice))
    broken = {case.severity for case in CASES if case.rule == rule}
    assert entry.severities[0] in broken, f"no case breaks {rule} as {entry.severities[0]}"


def test_every_rule_is_decided_by_a_checker_and_told_in_the_verdict(healthy_run: Callable[[str], Path]):
    verdict = reconcile(healthy_run("plain"))
    told = {*verdict.checked, *verdict.not_checked, *verdict.not_applicable}
    assert told >= RULES.keys()


def test_every_honest_run_is_known_by_its_shortcomings():
    assert {*INCOMPLETE, *WARNED} <= HEALTHY.keys()
