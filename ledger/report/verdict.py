"""A verdict as text: what may be said, the findings by rule with the gravest first, then what was not checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from ledger.audit.findings import SEVERITIES
from ledger.audit.rules import RULES
from ledger.records.documents import Finding, Severity, Verdict
from ledger.records.parts import Counters
from ledger.report.lines import Line, blank, bounded_table, heading, number, seconds
from ledger.report.timeline import PLAIN, Screen, lanes_of_verdict, timeline

__all__ = ["finding_lines", "verdict_lines"]

SHOWN_PER_RULE: Final = 5
FAILING: Final = frozenset({"error", "missing"})
BYTES_RULES: Final = frozenset({"LG402", "LG503", "LG601", "LG705"})
"""Rules that find stored bytes changed, which other rules may then stumble over."""
STYLES: Final[dict[str, str]] = {
    "error": "bold red",
    "missing": "bold yellow",
    "warning": "yellow",
    "hint": "cyan",
    "failed": "bold red",
    "incomplete": "bold yellow",
    "passed": "bold green",
}


def verdict_lines(verdict: Verdict, *, title: str, screen: Screen = PLAIN) -> Iterator[Line]:
    """Yield the lines of a report on a verdict."""
    yield Line(f"{title}: {verdict.verdict.upper()}", STYLES[verdict.verdict])
    evidence = verdict.account.get("status_evidence")
    yield Line(f"status: {verdict.status}" + (f" ({evidence})" if evidence else ""))
    yield from _account_lines(verdict, screen)
    yield from finding_lines(
        [found for found in verdict.findings if found.waiver is None],
        verdict.finding_counts,
        verdict.rule_counts,
    )
    yield from _waived_lines(verdict)
    yield from _unchecked_lines(verdict)


def finding_lines(
    findings: list[Finding],
    counts: dict[Severity, int],
    rule_counts: Mapping[str, Mapping[Severity, int]],
) -> Iterator[Line]:
    """Yield findings grouped by rule, causes before their consequences, a few of each and their exact number."""
    if not any(counts.values()):
        return
    yield blank()
    numbers = (f"{number(count)} {name}" for name, count in counts.items() if count)
    yield heading("findings: " + ", ".join(numbers))
    ordered = sorted(findings, key=_cause_first)
    groups = groupby(ordered, key=lambda found: (found.severity, found.rule))
    for (severity, rule), group in groups:
        members = list(group)
        for found in members[:SHOWN_PER_RULE]:
            yield Line(f"  {severity} {rule} {found.where}", STYLES[severity])
            yield Line(f"      {found.message}")
        more = rule_counts.get(rule, {}).get(severity, len(members)) - SHOWN_PER_RULE
        if more > 0:
            yield Line(f"      … and {number(more)} more of {rule}")
        yield from _advice(rule, severity)
    yield from _next_step(ordered)


def _advice(rule: str, severity: Severity) -> Iterator[Line]:
    """Say how findings of a rule usually come about, where one keeps the verdict from being passed, and what to do."""
    page = RULES.get(rule)
    if page is None:
        return
    if severity in FAILING:
        yield Line(f"      usual cause: {page.causes}", "dim")
    yield Line(f"      what to do: {page.advice}", "dim")


def _cause_first(found: Finding) -> tuple[int, bool, bool, str]:
    """Order by severity, then damage to the log and to stored bytes before what may only follow from it."""
    is_form, is_bytes = found.rule.startswith("LG1"), found.rule in BYTES_RULES
    return SEVERITIES.index(found.severity), not is_form, not is_bytes, found.rule


def _next_step(ordered: list[Finding]) -> Iterator[Line]:
    """Say what to read first, and what the first finding may explain."""
    rules = list(dict.fromkeys(found.rule for found in ordered if found.severity != "hint"))
    if not rules:
        return
    first = rules[0]
    is_damage = first.startswith("LG1") or first in BYTES_RULES
    if is_damage and len(rules) > 1:
        yield Line(f"  begin with {first}: records that were damaged or changed explain others, too")
    yield Line(f"  what it means and what to do: ledger explain {first}")


def _waived_lines(verdict: Verdict) -> Iterator[Line]:
    if not verdict.waived:
        return
    yield blank()
    yield heading(f"waived: {verdict.waived}")
    for found in verdict.findings:
        if found.waiver is not None:
            yield Line(f"  {found.severity} {found.rule} {found.where}")
            yield Line(f"      {found.message}")
            waiver = found.waiver
            yield Line(f"      accepted by {waiver.name} until {waiver.expires[:10]}: {waiver.reason}")


def _account_lines(verdict: Verdict, screen: Screen) -> Iterator[Line]:
    sessions: list[dict[str, Any]] = verdict.account.get("sessions") or []
    if sessions:
        yield blank()
        yield heading("sessions")
        yield from bounded_table([_session_row(session) for session in sessions])
        yield from timeline(lanes_of_verdict(verdict), screen=screen)
    if verdict.branch is not None and verdict.spent is not None:
        yield blank()
        yield Line("branch: " + _totals(verdict.branch))
        yield Line("spent:  " + _totals(verdict.spent) + _uncertainty(verdict))
    coverage: dict[str, dict[str, int | None]] = verdict.account.get("coverage") or {}
    for source, found in coverage.items():
        share = f" of {number(found['epoch_tokens'])}" if found["epoch_tokens"] else ""
        yield Line(
            f"data:   {source}: {number(found['positions_processed'])} positions processed, "
            f"{number(found['distinct_tokens'])}{share} tokens distinct, epoch {found['epochs']}"
        )
    seal: dict[str, Any] | None = verdict.account.get("seal")
    if seal:
        yield Line(f"sealed: {seal['sealed']}")
        yield from (Line(f"        {line}") for line in seal["head"])
    attestation: dict[str, Any] | None = verdict.account.get("attestation")
    if attestation:
        by = attestation["verified_key"]
        yield Line(
            f"attested: {attestation['result']} for run {attestation['run_id']}, sealed {attestation['sealed']}, "
            + (f"signed by {by}" if by else "signature not checked")
        )
        yield from (Line(f"        {name}") for name in attestation["subjects"])
    equivalence: dict[str, str] = verdict.account.get("equivalence") or {}
    if equivalence:
        names = {"LG801": "start", "LG802": "data", "LG803": "loss, norm, rate", "LG804": "parameters"}
        yield Line(
            "control: " + ", ".join(f"{names.get(rule, rule)} {how}" for rule, how in equivalence.items())
        )


def _session_row(session: dict[str, Any]) -> list[str]:
    branch = session["on_branch_up_to_step"]
    place = "superseded" if branch is None else f"on the branch up to step {branch}"
    return [
        str(session["session"]),
        session["start"],
        f"step {session['first_step']} to {session['last_step']}",
        session["status"],
        f"{number(session['work']['tokens_seen'])} tokens",
        seconds(session["elapsed_seconds"]),
        place,
    ]


def _totals(counters: Counters) -> str:
    return (
        f"{number(counters.step)} updates, {number(counters.skipped)} skipped, "
        f"{number(counters.microbatches)} microbatches, {number(counters.tokens_seen)} tokens"
    )


def _uncertainty(verdict: Verdict) -> str:
    unclean = verdict.account.get("unclean_sessions") or []
    if not unclean:
        return ""
    most = (verdict.account.get("spent_at_most") or {}).get("tokens_seen")
    bound = "an unknown number" if most is None else number(most)
    return f" at least, {bound} tokens at most (unlogged work of session {', '.join(map(str, unclean))})"


def _unchecked_lines(verdict: Verdict) -> Iterator[Line]:
    for name, reasons in (("not checked", verdict.not_checked), ("not applicable", verdict.not_applicable)):
        if reasons:
            yield blank()
            yield heading(name)
            yield from (Line(f"  {rules}: {reason}", "dim") for rules, reason in _by_reason(reasons))


def _by_reason(reasons: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what shares a reason together, in the order of the first."""
    together: dict[str, list[str]] = {}
    for rule, reason in reasons.items():
        together.setdefault(reason, []).append(rule)
    for reason, rules in together.items():
        yield ", ".join(rules), reason
