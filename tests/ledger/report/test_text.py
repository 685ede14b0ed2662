from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ledger.audit import reconcile, summarize
from ledger.audit.findings import Findings
from ledger.audit.rules import RULES
from ledger.report.lines import Line, number, seconds, table
from ledger.report.summary import summary_lines
from ledger.report.verdict import finding_lines, verdict_lines


def text(lines) -> str:
    return "\n".join(line.text for line in lines)


def test_a_verdict_begins_with_what_may_be_said(healthy_run: Callable[[str], Path]):
    lines = list(verdict_lines(reconcile(healthy_run("plain")), title="run x"))
    assert lines[0].text == "run x: PASSED"
    assert lines[1].text.startswith("status: complete")


def test_a_verdict_states_what_was_spent_as_a_range_after_a_kill(healthy_run: Callable[[str], Path]):
    shown = text(verdict_lines(reconcile(healthy_run("resumed")), title="x"))
    assert "at least" in shown
    assert "at most (unlogged work of session 1)" in shown


def test_a_verdict_without_a_kill_states_what_was_spent_exactly(healthy_run: Callable[[str], Path]):
    assert "at least" not in text(verdict_lines(reconcile(healthy_run("plain")), title="x"))


def test_a_verdict_says_what_was_not_checked(healthy_run: Callable[[str], Path]):
    shown = text(verdict_lines(reconcile(healthy_run("plain")), title="x"))
    assert "not checked" in shown
    assert "no control was given" in shown


def shown_of(findings: Findings) -> list[str]:
    return [line.text for line in finding_lines(findings.kept, findings.counts, findings.rule_counts)]


def test_many_findings_stay_readable_and_are_counted_exactly():
    findings = Findings()
    for number_ in range(100_000):
        findings.add("LG201", "wrong", where=f"line {number_}")
        findings.add("LG605", "other", where=f"line {number_}")
    findings.add("LG201", "a hint", where="the last line", severity="hint")
    assert len(findings.kept) == 201
    assert findings.counts["error"] == 100_000
    assert findings.rule_counts == {"LG201": {"error": 100_000, "hint": 1}, "LG605": {"warning": 100_000}}
    lines = shown_of(findings)
    assert lines[1] == "findings: 100,000 error, 100,000 warning, 1 hint"
    assert lines.count("      … and 99,995 more of LG201") == 1
    assert lines.count("      … and 99,995 more of LG605") == 1
    assert len(lines) < 40


def test_no_flood_hides_another_rule_or_a_graver_finding():
    findings = Findings()
    rules = sorted(RULES)
    for rule in rules:
        for number_ in range(150):
            findings.add(rule, "wrong", where=f"line {number_}", severity="hint")
    findings.add("LG306", "the one error", where="the end", severity="error")
    assert len(findings.kept) <= 1000
    assert {found.rule for found in findings.kept} == set(rules)
    assert findings.kept[0].message == "the one error"
    assert findings.counts["hint"] == 150 * len(rules)


def test_damage_comes_before_what_may_follow_from_it():
    findings = Findings()
    for rule in ("LG211", "LG302", "LG402", "LG102", "LG701"):
        findings.add(rule, "wrong", where="somewhere")
    lines = shown_of(findings)
    order = [line.split()[1] for line in lines if line.startswith(("  error", "  missing"))]
    assert order == ["LG102", "LG402", "LG211", "LG302", "LG701"]
    assert lines[-2].startswith("  begin with LG102")
    assert lines[-1].endswith("ledger explain LG102")


def test_a_single_finding_has_no_order_to_explain():
    findings = Findings()
    findings.add("LG402", "wrong", where="somewhere")
    assert shown_of(findings)[-1] == "  what it means and what to do: ledger explain LG402"
    assert not any("begin with" in line for line in shown_of(findings))


def test_the_gravest_findings_come_first():
    findings = Findings()
    findings.add("LG605", "other", where="a")
    findings.add("LG104", "torn", where="b")
    findings.add("LG201", "wrong", where="c")
    assert [found.severity for found in findings.kept] == ["error", "missing", "warning"]


def test_a_path_that_is_no_text_can_be_reported():
    findings = Findings()
    findings.add("LG601", "gone", where="caf\udce9")
    assert findings.kept[0].where == "caf\\udce9"


def test_a_summary_names_the_best_of_the_branch_and_whether_it_is_kept(healthy_run: Callable[[str], Path]):
    summary = summarize(healthy_run("plain"))
    assert summary.best is not None
    shown = text(summary_lines(summary))
    assert f"best validation loss {number(summary.best.loss)} at step {summary.best.step}" in shown
    where = (
        f"checkpoint {summary.best.checkpoint}" if summary.best.checkpoint else "no checkpoint of it is kept"
    )
    assert where in shown
    gone = summary.model_copy(update={"best": summary.best.model_copy(update={"checkpoint": None})})
    assert "no checkpoint of it is kept" in text(summary_lines(gone))


def test_a_summary_keeps_training_and_wall_clock_apart(healthy_run: Callable[[str], Path]):
    shown = text(summary_lines(summarize(healthy_run("resumed"))))
    assert "training only" in shown
    assert "wall clock" in shown
    assert "earlier sessions" in shown
    assert "latest session, number 2" in shown


def test_a_summary_that_passed_says_that_this_does_not_make_the_run_done(healthy_run: Callable[[str], Path]):
    shown = text(summary_lines(summarize(healthy_run("resumed"))))
    assert "PASSED\njudged: the log's form and counters; whether the run is done: ledger reconcile" in shown


def test_a_summary_of_a_killed_session_is_incomplete_and_says_why(healthy_run: Callable[[str], Path]):
    shown = text(summary_lines(summarize(healthy_run("interrupted"))))
    assert "INCOMPLETE\nthe latest session has no end" in shown


def test_numbers_and_durations_are_for_people():
    assert [number(value) for value in (None, 9_999, 1_234_567, 0.1234567891, "NaN", True)] == [
        "-",
        "9999",
        "1,234,567",
        "0.123457",
        "NaN",
        "True",
    ]
    assert [seconds(value) for value in (1.26, 61.0, 3 * 3600 + 120.0)] == [
        "1.3 s",
        "1 min 01 s",
        "3 h 02 min",
    ]


def test_a_table_aligns_rows_of_different_lengths():
    assert list(table([["a", "bb"], ["aaa"]])) == [Line("  a    bb"), Line("  aaa")]
