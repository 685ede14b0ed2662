"""The history: current branch, superseded work, spent work, latest checkpoint."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from ledger.history import History
from ledger.recorder import RunRecorder
from ledger.records.events import Checkpoint, SessionStart
from ledger.records.parts import ZERO, Counters, Parent, Superseded, subtract_counters
from tests.support.audited import audit
from tests.support.reading import events_of, history
from tests.support.systems import QuickFileSystem
from tests.support.toy import ToyLoop, ToySettings, attempt, begin, measurement, save

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=100, accumulation=1, evaluate_every=None)


@pytest.fixture
def run_dir(tmp_path):
    run_dir = tmp_path / "run"
    yield run_dir
    audit(run_dir)


def session(run_dir, *, updates, saves=(), start="resume", named=None) -> None:
    """Do a session of so many updates that saves at the named steps and is killed."""
    loop = ToyLoop(SETTINGS)
    recorder = RunRecorder(run_dir, fs=QUICK)
    recorder.__enter__()
    begin(recorder, loop, start=start, named=None if named is None else run_dir / "checkpoints" / named)
    for _ in range(updates):
        attempt(recorder, loop)
        if recorder.step in saves:
            save(recorder, loop, "interval")
    recorder.abandon()


def lost(run_dir) -> Superseded:
    return events_of(run_dir, SessionStart)[-1].superseded


def counters(step) -> Counters:
    return Counters(step, step, 0, step, 8 * step, 8 * step)


def test_a_history_without_sessions_is_empty():
    empty = History()
    assert (empty.branch(), empty.spent(), empty.branch_counters()) == ([], ZERO, ZERO)
    assert (empty.run_id, empty.facts, empty.target_step(), empty.run_document()) == (None, None, None, None)
    assert empty.latest([]) is None


def test_a_resume_supersedes_what_came_after_its_checkpoint(run_dir):
    session(run_dir, updates=6, saves={4}, start="fresh")
    session(run_dir, updates=3)
    assert lost(run_dir) == Superseded(updates=2, attempts=2, microbatches=2, tokens=16, events=2)
    told = history(run_dir)
    assert [(part.session.number, part.end.step) for part in told.branch()] == [(1, 4), (2, 7)]
    assert (told.branch_counters(), told.spent()) == (counters(7), counters(9))


def test_a_resume_from_the_last_line_supersedes_nothing(run_dir):
    session(run_dir, updates=4, saves={4}, start="fresh")
    session(run_dir, updates=1)
    assert lost(run_dir) == Superseded(0, 0, 0, 0, 0)


def test_a_restart_supersedes_the_whole_branch(run_dir):
    session(run_dir, updates=5, saves={2}, start="fresh")
    session(run_dir, updates=2)
    session(run_dir, updates=1, start="restart")
    assert lost(run_dir) == Superseded(updates=4, attempts=4, microbatches=4, tokens=32, events=7)
    told = history(run_dir)
    assert [part.session.number for part in told.branch()] == [3]
    assert (told.branch_counters(), told.spent()) == (counters(1), counters(8))
    assert told.latest(told.checkpoints()) is None


def test_going_back_to_a_superseded_branch_loses_the_one_left_and_nothing_twice(run_dir):
    session(run_dir, updates=10, saves={4, 8}, start="fresh")
    session(run_dir, updates=5, start="resume", named="step-00000004-s01")
    session(run_dir, updates=1, start="resume", named="step-00000008-s01")
    # Session 2 had its start and 5 train events; of session 1, everything up to step 4 was there and stays.
    assert lost(run_dir) == Superseded(updates=5, attempts=5, microbatches=5, tokens=40, events=6)
    told = history(run_dir)
    assert [(part.session.number, part.end.step) for part in told.branch()] == [(1, 8), (3, 9)]
    assert told.spent() == counters(16)


def test_the_latest_checkpoint_lies_on_the_current_branch_only(run_dir):
    session(run_dir, updates=8, saves={2, 8}, start="fresh")
    session(run_dir, updates=3, saves={3}, start="resume", named="step-00000002-s01")
    told = history(run_dir)
    latest = told.latest(told.checkpoints())
    assert latest is not None
    assert latest.path == "checkpoints/step-00000003-s02"
    assert [told.is_on_branch(known) for known in told.checkpoints()] == [True, False, True]


def test_of_two_checkpoints_at_one_place_the_later_session_s_is_the_latest(run_dir):
    session(run_dir, updates=2, saves={2}, start="fresh")
    loop = ToyLoop(SETTINGS)
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, loop, start="resume")
        save(recorder, loop, "milestone")
    told = history(run_dir)
    latest = told.latest(told.checkpoints())
    assert latest is not None
    assert latest.session == 2


def test_the_history_before_a_session_is_what_it_saw(run_dir):
    session(run_dir, updates=3, saves={2}, start="fresh")
    session(run_dir, updates=2)
    earlier = history(run_dir).before(2)
    assert [part.session.number for part in earlier.branch()] == [1]
    assert earlier.branch_counters() == counters(3)


def test_a_counter_that_fell_counts_as_no_work():
    assert subtract_counters(counters(2), counters(5)) == ZERO


def measured(run_dir, losses, *, start="fresh", saves=()) -> None:
    """Do a session that measures after each update: (loss, complete) or None."""
    loop = ToyLoop(SETTINGS)
    recorder = RunRecorder(run_dir, fs=QUICK)
    recorder.__enter__()
    begin(recorder, loop, start=start)
    for given in losses:
        attempt(recorder, loop)
        for loss, complete in given:
            result = dataclasses.replace(
                measurement(loop, complete=complete), loss=loss, tokens=32 if complete else 16
            )
            recorder.evaluation(result)
        if recorder.step in saves:
            save(recorder, loop, "interval")
    recorder.abandon()


def best(run_dir, **how) -> tuple[int, object, bool, str | None]:
    found = history(run_dir).best(**how)
    assert found is not None
    kept = None if found.checkpoint is None else found.checkpoint.path[-12:]
    return found.evaluation.step, found.evaluation.loss, found.evaluation.complete, kept


def test_without_a_finite_evaluation_nothing_is_best(run_dir):
    session(run_dir, updates=2, start="fresh")
    assert history(run_dir).best() is None
    measured(run_dir, [[(float("nan"), False)]], start="restart")
    assert history(run_dir).best() is None
    assert History().best() is None


def test_the_lowest_loss_is_best_and_the_earliest_of_equal_ones(run_dir):
    measured(run_dir, [[(3.0, False)], [(2.0, False)], [(2.0, False)], [(float("nan"), False)]], saves={1, 3})
    assert best(run_dir) == (2, 2.0, False, None)
    assert best(run_dir, must_be_kept=True) == (3, 2.0, False, "00000003-s01")


def test_only_losses_that_measured_the_same_are_compared(run_dir):
    measured(run_dir, [[(3.0, False)], [(2.5, False), (1.0, True)]])
    assert best(run_dir) == (2, 2.5, False, None)


def test_of_extents_measured_equally_often_the_largest_counts(run_dir):
    measured(run_dir, [[(2.5, False), (3.0, True)]])
    assert best(run_dir) == (1, 3.0, True, None)


def test_what_was_superseded_is_not_best(run_dir):
    measured(run_dir, [[(3.0, False)], [(1.0, False)]], saves={1})
    measured(run_dir, [[(2.0, False)]], start="resume")
    assert best(run_dir) == (2, 2.0, False, None)


class CountingHistory(History):
    """A history that counts how many sessions were looked up."""

    looked_up = 0

    def session(self, number):
        self.looked_up += 1
        return super().session(number)


def test_a_new_session_is_compared_with_the_sessions_that_it_leaves_not_with_all_of_them(run_dir):
    session(run_dir, updates=2, saves={1}, start="fresh")
    [start], [saved] = events_of(run_dir, SessionStart), events_of(run_dir, Checkpoint)
    parent = Parent(start.run_id, 1, 1, saved.path, saved.manifest_sha256)
    many = CountingHistory()
    many.add(start, chain="")
    many.add(saved, chain="")
    for number in range(2, 101):
        of = msgspec.structs.replace(parent, session=number - 1)
        again = msgspec.structs.replace(start, session=number, parent=of, run=None)
        many.add(again, chain="")
    earlier = many.before(101)
    assert earlier.latest_with_event() == earlier.latest(earlier.checkpoints())
    many.looked_up = 0
    many.superseded_by(msgspec.structs.replace(parent, session=100), start.counters)
    assert many.looked_up <= 2
