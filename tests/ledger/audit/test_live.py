"""A run that is audited while it is written is incomplete, whatever its writer does meanwhile; never broken."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile, summarize
from ledger.audit.stream import read_through
from ledger.recorder import RunRecorder
from ledger.records.documents import Verdict
from tests.support.toy import Killed, ToyLoop, ToySettings, attempt, begin, evaluate, run_toy, save

SETTINGS = ToySettings(target_step=40, checkpoint_interval=2, evaluate_every=2)


def progress(recorder: RunRecorder, loop: ToyLoop) -> None:
    """Train on over a checkpoint, and keep an evaluation of it."""
    for _ in range(2):
        attempt(recorder, loop)
    save(recorder, loop, "interval")
    evaluate(recorder, loop, complete=True)


def finish(recorder: RunRecorder, loop: ToyLoop) -> None:
    """Train to the target and end."""
    while recorder.step < SETTINGS.target_step:
        attempt(recorder, loop)
    save(recorder, loop, "final")
    evaluate(recorder, loop, complete=True)
    recorder.end()


@contextmanager
def writing(run: Path, settings: ToySettings = SETTINGS) -> Iterator[tuple[RunRecorder, ToyLoop]]:
    """Give a writer at work, its first checkpoint taken."""
    loop = ToyLoop(settings)
    with RunRecorder(run) as recorder:
        begin(recorder, loop)
        progress(recorder, loop)
        yield recorder, loop


def audit_while(
    monkeypatch: pytest.MonkeyPatch,
    run: Path,
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> Verdict:
    """Audit a run whose writer acts just before the log is read, and again just behind."""

    def read(*arguments: Any) -> None:
        before()
        read_through(*arguments)
        after()

    monkeypatch.setattr("ledger.audit.passing.read_through", read)
    return reconcile(run)


def grave(verdict: Verdict) -> list[object]:
    return [finding for finding in verdict.findings if finding.severity in ("error", "warning")]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("act", [progress, finish])
def test_a_writer_at_work_makes_no_finding(
    act: Callable[[RunRecorder, ToyLoop], None], moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = tmp_path / "run"
    with writing(run) as (recorder, loop):
        moments: Any = {moment: lambda: act(recorder, loop)}
        verdict = audit_while(monkeypatch, run, **moments)
    assert grave(verdict) == []
    assert verdict.verdict == "incomplete"


def test_a_session_that_starts_during_the_audit_makes_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run = tmp_path / "run"
    with writing(run):
        pass
    longer = dataclasses.replace(SETTINGS, target_step=44)
    recorder = RunRecorder(run)

    def resume() -> None:
        recorder.__enter__()
        loop = ToyLoop(longer)
        begin(recorder, loop, start="auto")
        progress(recorder, loop)

    verdict = audit_while(monkeypatch, run, before=resume)
    recorder.__exit__(None, None, None)
    assert [finding for finding in grave(verdict) if finding.rule != "LG307"] == []  # type: ignore[attr-defined]
    assert (verdict.verdict, verdict.status) == ("incomplete", "running")


def test_a_whole_session_during_the_audit_makes_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = tmp_path / "run"
    with suppress(Killed), writing(run) as (recorder, _):
        recorder.abandon()
        raise Killed
    verdict = audit_while(monkeypatch, run, before=lambda: run_toy(run, SETTINGS, start="auto"))
    assert verdict.finding_counts["error"] == 0, verdict.findings


def test_retention_during_the_audit_makes_no_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = tmp_path / "run"
    with writing(run) as (recorder, loop):
        progress(recorder, loop)
        doomed = run / "checkpoints" / "step-00000002-s01"
        verdict = audit_while(
            monkeypatch,
            run,
            after=lambda: doomed.rename(doomed.with_name(f".{doomed.name}.tmp-0123456789abcdef")),
        )
    assert grave(verdict) == []
    assert verdict.verdict == "incomplete"


def test_run_json_that_is_not_yet_written_is_no_finding(tmp_path: Path):
    run = tmp_path / "run"
    with writing(run):
        (run / "run.json").unlink()
        assert grave(reconcile(run)) == []


def test_a_damaged_live_run_is_still_found(tmp_path: Path):
    run = tmp_path / "run"
    with writing(run):
        document = json.loads((run / "run.json").read_bytes())
        (run / "run.json").write_text(json.dumps(document | {"name": "other"}))
        assert {finding.rule for finding in reconcile(run).findings if finding.severity == "error"} == {
            "LG108"
        }


def test_a_writer_in_a_thread_is_never_called_broken(tmp_path: Path):
    run = tmp_path / "run"
    settings = ToySettings(target_step=120, checkpoint_interval=1, evaluate_every=3)
    writer = threading.Thread(target=run_toy, args=(run, settings))
    writer.start()
    while not (run / "metrics.jsonl").exists():
        pass
    while writer.is_alive():
        verdict = reconcile(run)
        assert verdict.finding_counts["error"] == 0, verdict.findings
        assert summarize(run).verdict != "failed"
    writer.join()
    assert reconcile(run).verdict == "passed"
