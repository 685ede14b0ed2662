"""Permitted changes of the recipe are said in the log, and the target in force follows them."""

from __future__ import annotations

import dataclasses

from ledger.recorder import RunRecorder
from ledger.records.events import Amendment, SessionEnd, SessionStart
from tests.support.reading import events, events_of, run_document
from tests.support.systems import QuickFileSystem
from tests.support.toy import ToyLoop, ToySettings, begin, run_toy

QUICK = QuickFileSystem()
SETTINGS = ToySettings(target_step=4, checkpoint_interval=2)
RAISED = dataclasses.replace(SETTINGS, target_step=6)


def test_a_raised_target_is_one_amendment_directly_behind_the_start(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    run_toy(run_dir, RAISED, start="resume", fs=QUICK)
    first = next(index for index, event in enumerate(events(run_dir)) if event.session == 2)
    start, amendment = events(run_dir)[first : first + 2]
    assert isinstance(start, SessionStart)
    assert isinstance(amendment, Amendment)
    assert (amendment.field, amendment.from_, amendment.to) == ("run.target_step", 4, 6)
    assert (amendment.class_, amendment.reason) == ("operational", "changed in the configuration")
    assert events_of(run_dir, SessionEnd)[-1].status == "completed"
    assert events_of(run_dir, SessionEnd)[-1].target_step == 6


def test_run_json_shows_target_and_plan_in_force(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    assert (run_document(run_dir).target_step, run_document(run_dir).planned_tokens) == (4, 4 * 16)
    run_toy(run_dir, RAISED, start="resume", fs=QUICK)
    assert (run_document(run_dir).target_step, run_document(run_dir).planned_tokens) == (6, 6 * 16)


def test_a_resume_under_the_raised_target_amends_nothing_again(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    run_toy(run_dir, RAISED, start="resume", fs=QUICK)
    run_toy(run_dir, RAISED, start="resume", fs=QUICK)
    assert [event.session for event in events_of(run_dir, Amendment)] == [2]
    assert run_document(run_dir).target_step == 6


def test_a_resume_from_before_the_amendment_states_it_again(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    run_toy(run_dir, RAISED, start="resume", fs=QUICK)
    named = run_dir / "checkpoints" / "step-00000002-s01"
    run_toy(run_dir, RAISED, start="resume", checkpoint=named, fs=QUICK)
    assert [(event.session, event.to) for event in events_of(run_dir, Amendment)] == [(2, 6), (3, 6)]


def test_every_operational_difference_is_an_amendment_with_the_given_reason(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    changed = dataclasses.replace(SETTINGS, interval=2, evaluate_every=1)
    with RunRecorder(run_dir, fs=QUICK) as recorder:
        begin(recorder, ToyLoop(changed), start="restart", amendment_reason="less noise")
    assert [
        (event.field, event.from_, event.to, event.reason) for event in events_of(run_dir, Amendment)
    ] == [
        ("evaluation.interval", 5, 1, "less noise"),
        ("logging.interval", 1, 2, "less noise"),
    ]


def test_an_unchanged_recipe_amends_nothing(run_dir):
    run_toy(run_dir, SETTINGS, fs=QUICK)
    run_toy(run_dir, SETTINGS, start="restart", fs=QUICK)
    assert events_of(run_dir, Amendment) == []
