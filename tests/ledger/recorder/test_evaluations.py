"""Evaluations: an event each, and a file of its own where it is kept."""

from __future__ import annotations

import dataclasses
import math

import pytest

from ledger.errors import RefusedError
from ledger.recorder import EvaluationResult, RunRecorder
from ledger.records.documents import Evaluation
from ledger.records.events import Validation
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import read_document
from tests.support.reading import events_of
from tests.support.systems import QuickFileSystem
from tests.support.toy import DATA_SHA256, ToyLoop, ToySettings, attempt, begin, run_toy

QUICK = QuickFileSystem()
RESULT = EvaluationResult(
    split="validation", data_sha256=DATA_SHA256, loss=2.5, tokens=16, batches=2, complete=True
)


def test_a_kept_evaluation_names_the_checkpoint_it_measured(run_dir):
    run_toy(run_dir, fs=QUICK)
    event = events_of(run_dir, Validation)[-1]
    assert event.evaluation is not None
    path = run_dir / event.evaluation.path
    document = read_document(path, Evaluation)
    assert sha256_hex(path.read_bytes()) == event.evaluation.sha256
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        latest = recorder.latest_checkpoint()
    assert latest is not None
    assert (document.manifest_sha256, document.state) == (latest.manifest_sha256, None)
    assert (document.loss, document.step, document.complete) == (event.loss, 12, True)


def test_without_a_checkpoint_it_names_the_state(run_dir):
    run_toy(run_dir, ToySettings(policy="none"), fs=QUICK)
    event = events_of(run_dir, Validation)[-1]
    assert event.evaluation is not None
    document = read_document(run_dir / event.evaluation.path, Evaluation)
    assert document.manifest_sha256 is None
    assert document.state is not None


def test_one_that_is_not_kept_stands_in_the_log_alone(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, ToyLoop())
        assert recorder.evaluation(RESULT) is None
    assert [event.evaluation for event in events_of(run_dir, Validation)] == [None]
    assert not (run_dir / "evaluations").exists()


def test_another_result_at_the_same_step_does_not_replace_the_first(run_dir):
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, ToyLoop())
        first = recorder.evaluation(RESULT, keep=True)
        assert recorder.evaluation(RESULT, keep=True) == first
        with pytest.raises(RefusedError, match="other content"):
            recorder.evaluation(dataclasses.replace(RESULT, loss=1.0), keep=True)


def test_a_diverged_measurement_is_recorded_in_words(unaudited_dir):
    with RunRecorder(unaudited_dir, fs=QUICK) as recorder:
        loop = ToyLoop()
        begin(recorder, loop)
        attempt(recorder, loop)
        recorder.evaluation(
            dataclasses.replace(RESULT, loss=math.nan, metrics={"perplexity": math.inf}), keep=True
        )
    (event,) = events_of(unaudited_dir, Validation)
    assert (event.loss, event.metrics) == ("NaN", {"perplexity": "Infinity"})


def test_the_seconds_are_those_of_the_phase_since_the_last_report(run_dir):
    run_toy(run_dir, ToySettings(evaluate_every=1), fs=QUICK)
    found = events_of(run_dir, Validation)
    assert all(0 < event.seconds < 1 for event in found)
