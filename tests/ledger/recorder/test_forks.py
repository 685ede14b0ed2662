"""A forked child writes nothing into its parent's run."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from ledger.errors import LedgerError
from ledger.recorder import EvaluationResult, RunRecorder
from tests.support.reading import events
from tests.support.systems import QuickFileSystem
from tests.support.toy import DATA_SHA256, ToyLoop, ToySettings, attempt, begin, consume, train

QUICK = QuickFileSystem()
RESULT = EvaluationResult(
    split="validation", data_sha256=DATA_SHA256, loss=2.5, tokens=16, batches=2, complete=True
)


def refused_in_child(action: Callable[[], object]) -> bool:
    """Do something in a forked child and tell whether a ledger error stopped it."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except LedgerError:
            os._exit(42)
        except BaseException:  # noqa: BLE001 - the child must end here, whatever happens
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) == 42


def checkpoint(recorder: RunRecorder) -> None:
    with recorder.checkpoint("interval"):
        pass


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_every_report_is_refused_in_a_child_and_the_parent_goes_on(run_dir):
    settings = ToySettings(target_step=2, accumulation=1, evaluate_every=None)
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        loop = ToyLoop(settings)
        begin(recorder, loop)
        attempt(recorder, loop)
        before = sorted(str(path) for path in run_dir.rglob("*"))
        lines = len(events(run_dir))
        for action in (
            lambda: recorder.note("from the child"),
            lambda: consume(recorder, loop),
            lambda: recorder.evaluation(RESULT, keep=True),
            lambda: checkpoint(recorder),
            recorder.end,
        ):
            assert refused_in_child(action)
        assert sorted(str(path) for path in run_dir.rglob("*")) == before
        assert len(events(run_dir)) == lines
        train(recorder, loop)
    assert events(run_dir)[-1].step == 2
