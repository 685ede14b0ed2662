"""What every reading of a run shares: opening it, the checkers of its log alone, one pass, what findings amount to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from ledger.audit.files import RunFiles
from ledger.audit.findings import Findings
from ledger.audit.form import FormChecker, PinChecker
from ledger.audit.heads import QuotedHead
from ledger.audit.measures import EvaluationChecker, FiniteChecker, LossTokenChecker, RateChecker
from ledger.audit.replay import CounterChecker, SkipChecker, WindowChecker
from ledger.audit.scaling import ScalerChecker
from ledger.audit.stream import Checker, Stream, read_through
from ledger.audit.timing import TimingChecker
from ledger.audit.waivers import find_waivers
from ledger.errors import NewerVersionError
from ledger.records.layout import LOG
from ledger.storage.filesystem import OS
from ledger.storage.lock import LockState, lock_state

__all__ = [
    "Outcome",
    "audit_stream",
    "counter_checkers",
    "form_checkers",
    "open_stream",
    "outcome",
    "refuse_newer",
]

Outcome = Literal["passed", "failed", "incomplete"]


def open_stream(
    run_dir: Path, *, progress: Callable[[int], object] | None = None
) -> tuple[Stream, LockState]:
    """Return a stream over a run, its log not yet read, and whether a writer holds it."""
    lock = lock_state(run_dir)
    files = RunFiles(run_dir)
    files.take_listing()
    has_log = OS.exists(run_dir / LOG)
    waivers = find_waivers(files)
    findings = Findings(waivers=waivers.in_force)
    for waiver, reason in waivers.refused.items():
        findings.skip(waiver, f"{reason}; it waives nothing")
    is_live = lock.state == "held"
    stream = Stream(files=files, findings=findings, has_log=has_log, is_live=is_live, progress=progress)
    return stream, lock


def form_checkers(stream: Stream, *, quoted: QuotedHead | None = None) -> list[Checker]:
    """Return the checkers of LG1 that need nothing but the log and what pins it."""
    return [FormChecker(stream), PinChecker(stream, quoted=quoted)]


def counter_checkers(stream: Stream) -> list[Checker]:
    """Return the checkers of LG2 that need nothing but the log and the recipes."""
    return [
        CounterChecker(stream),
        WindowChecker(stream),
        SkipChecker(stream),
        FiniteChecker(stream),
        RateChecker(stream),
        ScalerChecker(stream),
        EvaluationChecker(stream),
        LossTokenChecker(stream),
        TimingChecker(stream),
    ]


def audit_stream(stream: Stream, checkers: list[Checker]) -> None:
    """Feed the log to the checkers and let them conclude.

    Raises:
        NewerVersionError: a session was written by a newer version; the lines before it were read.
    """
    if stream.has_log:
        read_through(stream, checkers)
    for path, _ in stream.captured:
        stream.files.look_again(path)
    # A writer may have begun since; one that has ended since was at work while the log was read.
    stream.is_live = stream.is_live or lock_state(stream.files.run_dir).state == "held"
    refuse_newer(stream)
    for checker in checkers:
        checker.finish()


def refuse_newer(stream: Stream) -> None:
    """Refuse a run of which a newer version wrote a session.

    Raises:
        NewerVersionError: what was read so far holds such a session.
    """
    if stream.newer is None:
        return
    line, found = stream.newer
    raise NewerVersionError(
        f"a session was written in log version {found}",
        path=stream.files.run_dir / LOG,
        place=f"line {line}",
        advice="audit it with a newer version of the ledger",
    )


def outcome(findings: Findings, *, is_live: bool) -> Outcome:
    """Return the verdict that findings amount to."""
    if findings.count("error"):
        return "failed"
    return "incomplete" if findings.count("missing") or is_live else "passed"
