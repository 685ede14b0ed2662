"""A run as a page: verdict, account, sessions, curves, tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from ledger.audit.charts import RunCharts, ShownCheckpoint
from ledger.audit.rules import RULES
from ledger.records.documents import Finding, Verdict
from ledger.records.locks import Budget
from ledger.records.parts import COUNTER_NAMES
from ledger.report.budget import Spent, against_budget
from ledger.report.lines import number, seconds
from ledger.report.markup import Markup, element, joined, table_of, text
from ledger.report.page import facts_list, page, verdict_word
from ledger.report.run_charts import charts_of
from ledger.report.sessions import sessions_section

__all__ = ["account_rows", "counted", "findings_list", "run_page", "spent_of", "unlogged", "verdict_section"]

SHOWN_FINDINGS: Final = 40
COUNTER_WORDS: Final = dict(
    zip(
        COUNTER_NAMES,
        ("updates (step)", "attempts", "skipped", "microbatches", "tokens seen", "loss tokens"),
        strict=True,
    )
)


def run_page(charts: RunCharts, *, name: str, budget: Budget | None = None) -> str:
    """Return the report of a run.

    Args:
        charts: what its records show.
        name: what it was called by, where its records have no name.
        budget: of the lock that it was started under.
    """
    verdict = charts.verdict
    title = (charts.facts.name if charts.facts else None) or verdict.run_id or name
    return page(
        f"Run {title}: {verdict.verdict}",
        element("header", element("h1", "Run ", title), verdict_section(verdict)),
        element("section", facts_list(list(_facts(charts)))),
        findings_section(verdict),
        account_section(verdict),
        sessions_section(verdict, last_step=charts.last_step),
        element("section", element("h2", "Curves"), *(chart.render() for chart in charts_of(charts))),
        _time_section(charts),
        *_budget_section(charts, budget),
        _skips_section(charts),
        _evaluations_section(charts),
        _checkpoints_section(charts),
        _unchecked_section(verdict),
        tool_version=verdict.tool_version,
    )


def verdict_section(verdict: Verdict) -> Markup:
    """Return the verdict in a word, what the run's status is and why."""
    evidence = verdict.account.get("status_evidence")
    said = f"Status: {verdict.status}" + (f" ({evidence})" if evidence else "") + "."
    return joined([element("p", verdict_word(verdict.verdict)), element("p", said)])


def _facts(charts: RunCharts) -> Iterator[tuple[str, str]]:
    verdict, facts = charts.verdict, charts.facts
    yield "run", element("code", verdict.run_id or "unknown")
    if facts is not None:
        parameters = sum(facts.model.parameters.values())
        yield "purpose", facts.purpose
        yield "parameters", f"{number(parameters)} trainable"
    if charts.target_step is not None:
        yield "target", f"step {number(charts.target_step)}, reached {number(_reached(verdict, charts))}"
    if facts is not None:
        yield "planned", f"{number(facts.planned_tokens)} tokens at the first start"
        if facts.parent is not None:
            yield "branch of", f"run {facts.parent.run} ({facts.parent.mode})"
        if facts.recipe_lock_sha256 is not None:
            yield "recipe lock", element("code", facts.recipe_lock_sha256)
    if verdict.log_head is not None:
        yield "log head", element("code", f"{verdict.log_head.seq}:{verdict.log_head.chain}")
    seal: dict[str, Any] | None = verdict.account.get("seal")
    if seal:
        yield "sealed", text(str(seal["sealed"]))


def _reached(verdict: Verdict, charts: RunCharts) -> int:
    sessions: list[dict[str, Any]] = verdict.account.get("sessions") or []
    return int(sessions[-1]["last_step"]) if sessions else charts.last_step


def findings_section(verdict: Verdict) -> Markup:
    """Return the findings, the gravest first."""
    listed = findings_list(verdict, most=SHOWN_FINDINGS)
    return element("section", element("h2", "Findings"), element("p", f"{counted(verdict)}."), listed)


def findings_list(verdict: Verdict, *, most: int) -> Markup:
    """Return the gravest findings, waived ones marked, and how many more there are."""
    shown = verdict.findings[:most]
    more = sum(verdict.finding_counts.values()) + verdict.waived - len(shown)
    items = [_finding(found) for found in shown]
    if more > 0:
        items.append(element("li", f"… and {number(more)} more; ledger reconcile lists them."))
    return element("ul", *items, class_="findings") if items else Markup("")


def counted(verdict: Verdict) -> str:
    """Return how many findings there are, in words."""
    plural = {"error": "errors", "missing": "missing", "warning": "warnings", "hint": "hints"}
    counts = [
        f"{number(count)} {name if count == 1 else plural[name]}"
        for name, count in verdict.finding_counts.items()
        if count
    ]
    waived = [f"{number(verdict.waived)} waived"] if verdict.waived else []
    return ", ".join([*counts, *waived]) or "None: every rule that was checked holds"


def _finding(found: Finding) -> Markup:
    rule = RULES.get(found.rule)
    title = f"{found.rule}: {rule.title}" if rule is not None else found.rule
    parts = [
        element("b", found.severity.upper(), " ", title),
        element("p", element("code", found.where)),
        element("p", found.message),
    ]
    if found.waiver is not None:
        waiver = found.waiver
        parts.append(element("p", f"Accepted by {waiver.name} until {waiver.expires[:10]}: {waiver.reason}"))
    return element("li", *parts, class_=found.severity)


def account_rows(verdict: Verdict) -> list[list[str]]:
    """Return the account of work, a row for each counter: branch, superseded, spent; none without a session."""
    if verdict.branch is None or verdict.spent is None:
        return []
    lost: dict[str, int] = verdict.account.get("superseded") or {}
    return [
        [
            words,
            number(getattr(verdict.branch, name)),
            number(lost.get(name, 0)),
            number(getattr(verdict.spent, name)),
        ]
        for name, words in COUNTER_WORDS.items()
    ]


def unlogged(verdict: Verdict) -> str:
    """Return how sure the account of what was spent is, in a sentence."""
    unclean: list[int] = verdict.account.get("unclean_sessions") or []
    if not unclean:
        return "Every session ended with a record of it, so what was spent is exact."
    at_most: dict[str, int | None] = verdict.account.get("spent_at_most") or {}
    updates, tokens = at_most.get("step"), at_most.get("tokens_seen")
    which = ("session " if len(unclean) == 1 else "sessions ") + ", ".join(map(str, unclean[:20]))
    which += ", …" if len(unclean) > 20 else ""
    bound = (
        "an unknown amount" if tokens is None else f"{number(updates)} updates and {number(tokens)} tokens"
    )
    return (
        f"Spent is at least this, at most {bound}: {which} ended without a record, and work may be unlogged."
    )


def account_section(verdict: Verdict) -> Markup:
    """Return what the branch holds, what was superseded and what was spent."""
    rows = account_rows(verdict)
    parts = [element("p", "The log tells of no session.")]
    if rows:
        head = ["", "on the branch", "superseded", "spent"]
        parts = [table_of(head, rows, caption="Totals of all sessions"), element("p", unlogged(verdict))]
    coverage: dict[str, dict[str, int | None]] = verdict.account.get("coverage") or {}
    for source, found in list(coverage.items())[:20]:
        whole = f" of {number(found['epoch_tokens'])}" if found.get("epoch_tokens") else ""
        parts.append(
            element(
                "p",
                f"Data {source}: {number(found.get('positions_processed'))} positions processed, "
                f"{number(found.get('distinct_tokens'))}{whole} tokens distinct, epoch {found.get('epochs')}.",
            )
        )
    return element("section", element("h2", "Account of work"), *parts)


def _time_section(charts: RunCharts) -> Markup:
    verdict = charts.verdict
    whole = float(verdict.account.get("elapsed_seconds") or 0.0)
    rates = [
        ["training only", _rate(charts.training_tokens_per_second)],
        ["wall clock", _rate(charts.wall_tokens_per_second)],
    ]
    parts = [
        element("p", f"All sessions together took {seconds(whole)}."),
        table_of(["", "tokens a second, all sessions"], rates, caption="Throughput"),
    ]
    total = sum(charts.phases.values())
    if total > 0:
        rows = [
            [name, seconds(spent), f"{spent / total:.1%}"]
            for name, spent in charts.phases.items()
            if spent > 0
        ]
        caption = "Phases of the sessions that ended, their share of the sum"
        parts.append(table_of(["phase", "time", "share"], rows, caption=caption))
    return element("section", element("h2", "Time"), *parts)


def _budget_section(charts: RunCharts, budget: Budget | None) -> list[Markup]:
    if budget is None or charts.verdict.spent is None:
        return []
    rows = against_budget(budget, spent_of(charts))
    caption = "Projected for the updates made so far, and real, all sessions"
    table = table_of(["", "projected", "real"], rows, caption=caption)
    said = element(
        "p", f"The lock projected this from the pilot's stage {budget.rests_on}; it is no promise."
    )
    return [element("section", element("h2", "Against the budget"), said, table)]


def spent_of(charts: RunCharts) -> Spent:
    """Return what a run really took."""
    verdict = charts.verdict
    branch, spent = verdict.branch, verdict.spent
    return Spent(
        updates=branch.step if branch else 0,
        training_seconds=charts.phases.get("train", 0.0),
        data_seconds=charts.phases.get("data", 0.0),
        wall_seconds=float(verdict.account.get("elapsed_seconds") or 0.0),
        tokens_per_second=charts.training_tokens_per_second,
        checkpoints=charts.checkpoint_count,
        evaluation_seconds=charts.phases.get("evaluate"),
        checkpoint_seconds=charts.checkpoint_seconds,
        checkpoint_bytes=charts.checkpoint_bytes,
        superseded_tokens=max(0, spent.tokens_seen - branch.tokens_seen) if spent and branch else None,
        spent_tokens=spent.tokens_seen if spent else None,
    )


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}"


def _skips_section(charts: RunCharts) -> Markup:
    if not charts.skip_reasons:
        said = [element("p", "No attempt was skipped.")]
    else:
        rows = [[reason.replace("_", " "), number(count)] for reason, count in charts.skip_reasons.items()]
        said = [table_of(["reason", "attempts"], rows, caption="Skipped attempts of all sessions")]
    return element("section", element("h2", "Skips"), *said)


def _evaluations_section(charts: RunCharts) -> Markup:
    rows = []
    for found in charts.evaluations:
        branch = found.branch
        best = min(branch, key=lambda point: point.value, default=None)
        rows.append(
            [
                found.name,
                number(found.count + found.nonfinite_count),
                number(charts.complete_evaluations.get(found.name, 0)),
                "-" if best is None else f"{number(best.value)} at step {number(best.step)}",
                "-" if best is None else f"{number(branch[-1].value)} at step {number(branch[-1].step)}",
            ]
        )
    head = ["split", "evaluations", "of them complete", "lowest loss", "last loss"]
    shown = element("p", "None.")
    if rows:
        shown = table_of(head, rows, caption="Losses in nats, on the branch")
    return element("section", element("h2", "Evaluations"), shown)


def _checkpoints_section(charts: RunCharts) -> Markup:
    if not charts.checkpoints:
        return element("section", element("h2", "Checkpoints"), element("p", "None."))
    said = (
        f"{number(charts.checkpoint_count)} committed, {number(charts.checkpoint_bytes)} bytes in all; "
        f"they blocked training for {seconds(charts.checkpoint_seconds)}."
    )
    rows = [_checkpoint_row(shown) for shown in charts.checkpoints]
    head = ["checkpoint", "kind", "step", "bytes", "state"]
    caption = "All of them" if len(rows) == charts.checkpoint_count else f"The latest {len(rows)}"
    return element(
        "section", element("h2", "Checkpoints"), element("p", said), table_of(head, rows, caption=caption)
    )


def _checkpoint_row(shown: ShownCheckpoint) -> list[str]:
    state = "on the branch" if shown.on_branch else "superseded"
    return [
        element("code", shown.path),
        shown.kind,
        number(shown.step),
        number(shown.bytes),
        state + (", pruned" if shown.is_pruned else ""),
    ]


def _unchecked_section(verdict: Verdict) -> Markup:
    parts = [element("p", f"Checked: {', '.join(verdict.checked)}.")]
    for caption, reasons in (
        ("Not checked", verdict.not_checked),
        ("Not applicable", verdict.not_applicable),
    ):
        if reasons:
            rows = list(reasons.items())[:SHOWN_FINDINGS]
            parts.append(table_of(["what", "why"], rows, caption=caption))
    return element("section", element("h2", "What was checked and what was not"), *parts)
