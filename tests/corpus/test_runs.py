"""Every broken run has exactly the findings that it must have, and every rule and kind of fault has a broken run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import RULES, reconcile
from ledger.records.documents import Verdict
from tests.corpus.kinds import KINDS
from tests.corpus.runs import CASES, Case
from tests.ledger.audit.healthy import HEALTHY, INCOMPLETE, WARNED
from tests.ledger.audit.test_loader_faults import FAULTS

HANDFUL = {
    "a_word_of_the_note_changed",
    "a_window_counts_less",
    "redone_work_has_another_loss",
    "a_byte_of_a_tensor_is_flipped",
    "a_batch_that_the_shards_do_not_hold",
    "the_final_checkpoint_was_pruned",
    "an_export_was_added",
}
"""Also in the suite that takes little time: one of each group."""

Audit = Callable[..., Verdict]


def rules_of(verdict: Verdict) -> Counter[tuple[str, str]]:
    """Return how often each rule found something, by severity."""
    return Counter((found.rule, str(found.severity)) for found in verdict.findings)


@pytest.fixture(scope="module")
def usual(healthy_run: Callable[[str], Path]) -> Callable[[Case], Counter[tuple[str, str]]]:
    """Return what an honest run lacks, which its broken copies lack too; it is found once."""
    known: dict[tuple[str, bool], Counter[tuple[str, str]]] = {}

    def get(case: Case) -> Counter[tuple[str, str]]:
        if (case.run, case.rehash) not in known:
            run = healthy_run(case.run)
            known[case.run, case.rehash] = rules_of(reconcile(run, rehash=case.rehash, data=data_of(run)))
        return known[case.run, case.rehash]

    return get


def data_of(run: Path) -> Path | None:
    """Return the dataset beside a run, None where there is none."""
    data = run.with_name(f"{run.name}-data")
    return data if data.exists() else None


def table() -> list[object]:
    """Return the cases, most of them for the complete suite only."""
    return [
        pytest.param(
            case,
            id=f"{case.rule}-{case.name}",
            marks=() if case.name in HANDFUL else pytest.mark.slow,
        )
        for case in CASES
    ]


@pytest.mark.parametrize("case", table())
def test_a_broken_run_has_exactly_the_findings_it_must_have(
    case: Case,
    copy_of: Callable[[str], Path],
    healthy_run: Callable[[str], Path],
    usual: Callable[[Case], Counter[tuple[str, str]]],
):
    run = copy_of(case.run)
    case.do(run)
    control = None if case.control is None else healthy_run(case.control)
    verdict = reconcile(run, rehash=case.rehash, control=control, data=data_of(run))
    assert rules_of(verdict) == case.expected(usual(case)), verdict.findings
    assert all(finding.severity in RULES[finding.rule].severities for finding in verdict.findings)
    own = [found for found in verdict.findings if (found.rule, found.severity) == (case.rule, case.severity)]
    assert own[0].where
    assert case.says in own[0].message
    counts = verdict.finding_counts
    expected = "failed" if counts["error"] else "incomplete" if counts["missing"] else "passed"
    assert verdict.verdict == expected


def test_the_handful_is_part_of_the_corpus():
    assert {case.name for case in CASES} >= HANDFUL


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_page_and_a_case_that_breaks_it(rule: str):
    entry = RULES[rule]
    assert entry.id == rule
    assert all(len(text) > 20 for text in (entry.meaning, entry.causes, entry.advice))
    broken = {case.severity for case in CASES if case.rule == rule}
    assert entry.severities[0] in broken, f"no case breaks {rule} as {entry.severities[0]}"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_that_the_field_reports_has_a_broken_run_or_a_reason(kind: str):
    known = {case.name for case in CASES} | {fault.loop.__name__ for fault in FAULTS}
    entry = KINDS[kind]
    assert entry.cases or len(entry.reason) > 20
    assert set(entry.cases) <= known, set(entry.cases) - known


def test_every_rule_is_decided_by_a_checker_and_told_in_the_verdict(healthy_run: Callable[[str], Path]):
    verdict = reconcile(healthy_run("plain"))
    told = {*verdict.checked, *verdict.not_checked, *verdict.not_applicable}
    assert told >= RULES.keys()


def test_every_honest_run_is_known_by_its_shortcomings():
    assert {*INCOMPLETE, *WARNED} <= HEALTHY.keys()
