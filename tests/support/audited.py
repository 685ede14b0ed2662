"""What the audit says of a run that a test wrote."""

from __future__ import annotations

from pathlib import Path

from ledger.audit import reconcile
from ledger.records.documents import Verdict
from ledger.records.events import SessionEnd
from tests.support.reading import events


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


def audit(run_dir: Path) -> Verdict:
    """Audit a run as far as it came."""
    last = events(run_dir)[-1]
    is_done = isinstance(last, SessionEnd) and last.status in ("completed", "closed")
    return assert_passed(run_dir) if is_done else assert_honest(run_dir)
