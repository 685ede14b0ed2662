from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile
from ledger.errors import EvidenceMissingError, InvalidDocumentError, LedgerError, RefusedError, UsageError
from ledger.maintain import add_waiver, withdraw_waiver
from ledger.records.documents import Verdict
from ledger.records.layout import SEAL, WAIVERS
from ledger.records.waivers import Waiver, Waivers
from ledger.storage.documents import write_document
from tests.ledger.audit.editing import edit, of_kind

LATER = "2999-01-01T00:00:00.000000Z"
PAST = "2001-01-01T00:00:00.000000Z"


def waiver(rule: str = "LG214", where: str = "", *, expires: str = LATER) -> Waiver:
    return Waiver(rule=rule, where=where or "x", reason="a known fault", name="Ada", expires=expires)


@pytest.fixture
def broken(copy_of: Callable[[str], Path]) -> tuple[Path, Verdict]:
    """A run with one finding, and the verdict on it."""
    run = copy_of("plain")
    edit(run, lambda events: of_kind(events, "val")[0].update(rng_after="ab" * 32))
    verdict = reconcile(run)
    assert [found.rule for found in verdict.findings] == ["LG214"]
    return run, verdict


def test_a_waived_finding_is_shown_and_does_not_count(broken):
    run, verdict = broken
    where = verdict.findings[0].where
    add_waiver(run, waiver(where=where))
    waived = reconcile(run)
    assert (waived.verdict, waived.waived) == ("passed", 1)
    assert waived.finding_counts["error"] == 0
    assert waived.findings[0].waiver == waiver(where=where)
    withdraw_waiver(run, rule="LG214", where=where)
    assert reconcile(run) == verdict


def test_an_expired_waiver_waives_nothing_and_says_so(broken):
    run, verdict = broken
    expired = waiver(where=verdict.findings[0].where, expires=PAST)
    write_document(run / WAIVERS, Waivers(waivers=[expired]), replace=False)
    found = reconcile(run)
    assert (found.verdict, found.waived) == ("failed", 0)
    assert any("expired" in reason for reason in found.not_checked.values())


@pytest.mark.parametrize("rule", ["LG102", "LG402", "LG503"])
def test_integrity_cannot_be_waived(rule, copy_of):
    run = copy_of("plain")
    with pytest.raises(RefusedError, match="integrity"):
        add_waiver(run, waiver(rule))
    assert not (run / WAIVERS).exists()
    write_document(run / WAIVERS, Waivers(waivers=[waiver(rule, "metrics.jsonl line 3")]), replace=False)
    edit_a_byte(run)
    verdict = reconcile(run)
    assert verdict.verdict == "failed"
    assert verdict.waived == 0


def edit_a_byte(run: Path) -> None:
    log = run / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"elapsed":', b'"elapsed":1'), *lines[3:]]))


def test_a_waiver_of_nothing_is_named(copy_of):
    run = copy_of("plain")
    add_waiver(run, waiver(where="nowhere"))
    verdict = reconcile(run)
    assert verdict.verdict == "passed"
    assert any("no such finding" in reason for reason in verdict.not_checked.values())


def test_a_damaged_list_waives_nothing_and_is_not_written_over(broken):
    run, verdict = broken
    (run / WAIVERS).write_text("{")
    found = reconcile(run)
    *others, damaged = found.findings
    assert (found.verdict, others) == ("failed", verdict.findings)
    assert (damaged.rule, damaged.where) == ("LG406", WAIVERS)
    assert WAIVERS in found.not_checked
    with pytest.raises(InvalidDocumentError):
        add_waiver(run, waiver())
    assert (run / WAIVERS).read_text() == "{"


def seal(run: Path) -> None:
    (run / SEAL).write_text("{}")


@pytest.mark.parametrize(
    ("given", "before", "error"),
    [
        (waiver("LG999"), None, UsageError),
        (waiver(expires=PAST), None, UsageError),
        (waiver(), seal, RefusedError),
    ],
)
def test_what_is_refused_leaves_nothing(
    given: Waiver, before: Callable[[Path], None] | None, error: type[LedgerError], copy_of
):
    run = copy_of("plain")
    if before is not None:
        before(run)
    with pytest.raises(error):
        add_waiver(run, given)
    assert not (run / WAIVERS).exists()


def test_one_finding_has_one_waiver(copy_of):
    run = copy_of("plain")
    add_waiver(run, waiver(where="a"))
    add_waiver(run, waiver(where="b"))
    add_waiver(run, waiver(where="a").model_copy(update={"name": "Grace"}))
    text = (run / WAIVERS).read_text()
    assert (text.count("Grace"), text.count("Ada")) == (1, 1)
    with pytest.raises(EvidenceMissingError):
        withdraw_waiver(run, rule="LG214", where="c")
