from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledger.audit import reconcile, verify
from ledger.audit.heads import QuotedHead, head_lines, parse_head
from ledger.errors import LockedError, RefusedError, UsageError
from ledger.maintain import seal_run, write_verdict
from ledger.recorder import RunRecorder
from ledger.records.documents import Seal
from ledger.records.layout import LOCK, SEAL
from ledger.records.parts import LogPosition
from ledger.storage.documents import read_document
from tests.ledger.audit.conftest import copy_of, healthy_run
from tests.ledger.audit.healthy import SMALL
from tests.support.toy import ToyLoop, begin, run_toy

__all__ = ["copy_of", "healthy_run"]

CHAIN = "ab" * 32
Run = Callable[[str], Path]


@pytest.fixture
def run(copy_of: Run) -> Path:
    return copy_of("plain")


def sealed(run: Path) -> QuotedHead:
    return parse_head("\n".join(seal_run(run, reconcile(run, rehash=True)).head))


def test_the_seal_names_every_file_but_the_lock_the_text_logs_and_itself(run: Path):
    (run / "logs").mkdir()
    (run / "logs" / "today.txt").write_text("for people")
    sealed(run)
    seal = read_document(run / SEAL, Seal)
    found = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    assert seal.files.keys() == found - {LOCK, SEAL, "logs/today.txt"}
    assert seal.verdict.verdict == "passed"
    assert seal.log == seal.verdict.log_head


def test_a_sealed_run_passes_and_the_quoted_lines_hold(run: Path):
    quoted = sealed(run)
    verdict = verify(run, quoted=quoted)
    assert verdict.verdict == "passed"
    assert verdict.findings == []
    assert {"LG105", "LG705"} <= set(verdict.checked)
    assert verdict.account["seal"]["head"] == head_lines(
        run_id=quoted.run_id or "", log=quoted.log, seal_sha256=quoted.seal_sha256
    )


def test_a_sealed_run_is_closed_to_everything_that_writes(run: Path):
    sealed(run)
    with pytest.raises(UsageError, match="is sealed"), RunRecorder(run) as recorder:
        begin(recorder, ToyLoop(), start="auto")
    verdict = reconcile(run, rehash=True)
    with pytest.raises(RefusedError, match="is sealed"):
        write_verdict(run, verdict)
    with pytest.raises(RefusedError, match="is sealed already"):
        seal_run(run, verdict)
    assert reconcile(run, rehash=True).verdict == "passed"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (f"run other-run head 1:{CHAIN}", "LG105"),
        (f"head 1:{CHAIN}", "LG105"),
        (f"head 100000:{CHAIN}", "LG105"),
    ],
)
def test_another_head_is_an_error(line: str, rule: str, run: Path):
    verdict = reconcile(run, quoted=parse_head(line))
    assert verdict.verdict == "failed"
    assert {(found.rule, found.where) for found in verdict.findings} == {(rule, "--expect-head")}


def test_a_run_that_was_sealed_anew_is_not_the_one_that_was_quoted(run: Path):
    quoted = sealed(run)
    (run / SEAL).unlink()
    (verdict_without,) = reconcile(run, quoted=quoted).findings
    assert (verdict_without.rule, "no seal" in verdict_without.message) == ("LG705", True)
    (run / "exports").mkdir()
    (run / "exports" / "notes.txt").write_text("added")
    sealed(run)
    assert reconcile(run).findings == []
    (finding,) = reconcile(run, quoted=quoted).findings
    assert (finding.rule, "another seal" in finding.message) == ("LG705", True)


def test_a_log_that_went_on_still_holds_an_older_head(run: Path):
    log = reconcile(run).log_head
    assert log is not None
    quoted = QuotedHead(run_id=None, log=log, seal_sha256=None)
    run_toy(run, dataclasses.replace(SMALL, target_step=7), start="resume")
    assert reconcile(run, quoted=quoted).findings == []


class TestIsRefused:
    def test_for_a_verdict_that_is_not_passed(self, copy_of: Run):
        run = copy_of("interrupted")
        with pytest.raises(RefusedError, match="verdict is incomplete"):
            seal_run(run, reconcile(run, rehash=True))

    def test_for_a_verdict_without_the_bytes(self, run: Path):
        with pytest.raises(RefusedError, match="not read"):
            seal_run(run, reconcile(run))

    def test_for_a_verdict_of_another_head(self, run: Path, healthy_run: Run):
        with pytest.raises(RefusedError, match="not the one that the verdict covers"):
            seal_run(run, reconcile(healthy_run("resumed"), rehash=True))

    def test_while_a_writer_holds_the_run(self, run: Path):
        verdict = reconcile(run, rehash=True)
        with RunRecorder(run), pytest.raises(LockedError):
            seal_run(run, verdict)

    def test_where_an_interrupted_write_left_something(self, run: Path):
        (run / ".run.json.tmp-0123456789abcdef").write_text("half")
        with pytest.raises(RefusedError, match="repair"):
            seal_run(run, reconcile(run, rehash=True))

    def test_where_a_link_lies_in_the_run(self, run: Path):
        passed = reconcile(run, rehash=True)
        (run / "exports").mkdir()
        (run / "exports" / "latest").symlink_to(run / "run.json")
        with pytest.raises(RefusedError, match="exports/latest"):
            seal_run(run, passed)  # it was put there since
        assert reconcile(run, rehash=True).verdict == "failed"

    @pytest.fixture(autouse=True)
    def _leaves_no_seal(self, tmp_path: Path) -> Iterator[None]:
        yield
        assert not list(tmp_path.rglob(SEAL))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"7:{CHAIN}", QuotedHead(run_id=None, log=LogPosition(7, CHAIN), seal_sha256=None)),
        (f" head 7:{CHAIN}\n", QuotedHead(run_id=None, log=LogPosition(7, CHAIN), seal_sha256=None)),
        (
            f"run a-b\r\nhead 7:{CHAIN}\r\nseal {CHAIN}",
            QuotedHead(run_id="a-b", log=LogPosition(7, CHAIN), seal_sha256=CHAIN),
        ),
    ],
)
def test_quoted_lines_are_read_however_they_are_spaced(text: str, expected: QuotedHead, tmp_path: Path):
    assert parse_head(text) == expected
    (tmp_path / "head.txt").write_bytes(text.encode())
    assert parse_head(str(tmp_path / "head.txt")) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", "head", f"7:{CHAIN[:-1]}", f"7:{CHAIN.upper()}", f"-7:{CHAIN}", "/dev", "x\0y", "x" * 9_000],
)
def test_what_is_no_head_is_refused(text: str):
    with pytest.raises(UsageError, match="no head"):
        parse_head(text)


def test_only_a_run_has_a_head(run: Path):
    quoted = QuotedHead(run_id=None, log=LogPosition(1, CHAIN), seal_sha256=None)
    with pytest.raises(UsageError, match="no run"):
        verify(run / "checkpoints" / "step-00000003-s01", quoted=quoted)
