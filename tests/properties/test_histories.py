"""Thousands of trees of sessions, written as bare logs: the history and a naive account add up to the same."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.history import History
from ledger.records.events import Checkpoint, Event, Overflow, SessionStart, Train, Validation, encode_event
from ledger.records.layout import LOG
from ledger.records.parts import At, Counters, Parent, Superseded
from ledger.storage.chain import chain_line, first_chain
from ledger.storage.log_reader import read_log
from tests.support.replay import replay
from tests.support.toy import ToySettings, run_toy

TOKENS = 8
actions = st.lists(st.sampled_from(["train", "train", "skip", "val", "checkpoint"]), max_size=8)
trees = st.lists(st.tuples(st.integers(0, 12), actions), min_size=1, max_size=7)
"""Of each session: which of the checkpoints before it it starts from (0: the beginning), and what it does."""

Templates = dict[type[Event], Any]


class Made(NamedTuple):
    """A checkpoint of a tree."""

    parent: Parent
    counters: Counters


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Templates:
    """Return one event of each kind."""
    run = tmp_path_factory.mktemp("templates") / "run"
    run_toy(run, ToySettings(target_step=2, checkpoint_interval=1, skip_attempts=frozenset({2})))
    return {type(line.event): line.event for line in read_log(run / LOG) if isinstance(line.event, Event)}


def written(run: Path, tree: list[tuple[int, list[str]]], templates: Templates) -> None:
    """Write the log of a tree of sessions; one microbatch is one attempt."""
    chain, seq, made = first_chain(templates[SessionStart].run_id), 0, list[Made]()
    with (run / LOG).open("wb") as log:
        for session, (choice, todo) in enumerate(tree, start=1):
            origin = made[choice % (len(made) + 1) - 1] if made and choice % (len(made) + 1) else None
            counters = Counters(0, 0, 0, 0, 0, 0) if origin is None else origin.counters
            for event in _events(session, origin, counters, todo, templates, made=made, first_seq=seq):
                line, chain = chain_line(chain, encode_event(event))
                log.write(line)
                seq += 1


def _events(
    session: int,
    origin: Made | None,
    counters: Counters,
    todo: list[str],
    templates: Templates,
    *,
    made: list[Made],
    first_seq: int,
) -> list[Event]:
    start = msgspec.structs.replace(
        templates[SessionStart],
        start="fresh" if session == 1 else "restart" if origin is None else "resume",
        run=templates[SessionStart].run if session == 1 else None,
        parent=None if origin is None else origin.parent,
        superseded=Superseded(0, 0, 0, 0, 0),
    )
    found: list[tuple[Event, Counters]] = [(start, counters)]
    for action in todo:
        if action in ("train", "skip"):
            applied = action == "train"
            counters = Counters(
                counters.step + applied,
                counters.attempts + 1,
                counters.skipped + (not applied),
                counters.microbatches + 1,
                counters.tokens_seen + TOKENS,
                counters.loss_tokens + TOKENS,
            )
            found.append((templates[Train if applied else Overflow], counters))
        elif action == "val":
            found.append((templates[Validation], counters))
        else:
            path = f"checkpoints/step-{counters.step:08d}-s{session:02d}-{len(found)}"
            at = At(seq=first_seq + len(found) - 1, **msgspec.structs.asdict(counters))
            found.append((msgspec.structs.replace(templates[Checkpoint], path=path, at=at), counters))
            parent = Parent(
                run=start.run_id,
                session=session,
                step=counters.step,
                checkpoint=path,
                manifest_sha256=templates[Checkpoint].manifest_sha256,
            )
            made.append(Made(parent, counters))
    return [
        msgspec.structs.replace(
            event, seq=first_seq + index, session=session, **msgspec.structs.asdict(totals)
        )
        for index, (event, totals) in enumerate(found)
    ]


def check(tree: list[tuple[int, list[str]]], templates: Templates) -> None:
    """Compare both accounts of a tree."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        written(run, tree, templates)
        history, superseded = History(), []
        for line in read_log(run / LOG):
            assert isinstance(line.event, Event)
            assert line.position is not None
            if isinstance(line.event, SessionStart) and history.sessions:
                superseded.append(history.superseded_by(line.event.parent, line.event.counters))
            history.add(line.event, chain=line.chain)
        told = replay(run)
    assert told.branch == msgspec.structs.asdict(history.branch_counters())
    assert told.spent == msgspec.structs.asdict(history.spent())
    assert told.superseded == [msgspec.structs.asdict(lost) for lost in superseded]
    assert sum(told.skips.values()) == told.branch["skipped"]


@given(tree=trees)
@settings(max_examples=25)
def test_some_trees_of_sessions_add_up_a_second_way(tree, templates: Templates):
    check(tree, templates)


@pytest.mark.slow
@given(tree=trees)
@settings(max_examples=2_000)
def test_thousands_of_trees_of_sessions_add_up_a_second_way(tree, templates: Templates):
    check(tree, templates)
