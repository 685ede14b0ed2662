"""What the audit says of a run that a test wrote."""

from __future__ import annotations

from pathlib import Path

from ledger.audit import reconcile
from ledger.records.documents import Verdict
from ledger.records.events import SessionEnd, SessionStart
from tests.support.reading import events
from tests.support.replay import replay


def assert_honest(run_dir: Path) -> Verdict:
    """Audit a run that may have ended anyhow: nothing in it contradicts itself."""
    verdict = reconcile(run_dir)
    assert verdict.verdict != "failed", _findings(verdict)
    return verdict


def assert_passed(run_dir: Path) -> Verdict:
    """Audit a run that reached its target: it passes."""
    verdict = reconcile(run_dir)
    assert verdict.verdict == "passed", _findings(verdict)
    return verdict


def _findings(verdict: Verdict) -> str:
    lines = [f"{found.severity} {found.rule} {found.where}: {found.message}" for found in verdict.findings]
    return "\n".join([f"the audit says {verdict.verdict!r}", *lines])


def assert_adds_up(run_dir: Path, verdict: Verdict) -> None:
    """Compare the audit's account with a naive one that shares no code with it."""
    told = replay(run_dir)
    for mine, theirs in ((told.branch, verdict.branch), (told.spent, verdict.spent)):
        assert theirs is not None
        assert mine == {name: getattr(theirs, name) for name in mine}
    stated = [event.superseded for event in events(run_dir) if isinstance(event, SessionStart)][1:]
    assert told.superseded == [
        {name: getattr(found, name) for name in ("updates", "attempts", "microbatches", "tokens", "events")}
        for found in stated
    ]
    assert sum(told.skips.values()) == told.branch["skipped"]


def audit(run_dir: Path) -> Verdict:
    """Audit a run as far as it came, and add it up a second way."""
    last = events(run_dir)[-1]
    is_done = isinstance(last, SessionEnd) and last.status in ("completed", "closed")
    verdict = assert_passed(run_dir) if is_done else assert_honest(run_dir)
    assert_adds_up(run_dir, verdict)
    return verdict
