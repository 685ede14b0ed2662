"""Single facts that contradict another one, where nothing else does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.corpus.runs.base import FIRST_CHECKPOINT, OTHER, case, edited, note_behind
from tests.ledger.audit.editing import Events, edit, of_kind, renumber


def say(events: Events, after: dict[str, Any], **event: Any) -> None:
    """Put another event behind one."""
    said = note_behind(after) | event
    if said["event"] != "note":
        del said["text"]
    events.insert(events.index(after) + 1, said)
    renumber(events)


def prune(events: Events, **changes: Any) -> None:
    """Say behind the last checkpoint that retention removed the first one."""
    first, last = of_kind(events, "checkpoint")
    said = {"path": first["path"], "manifest_sha256": first["manifest_sha256"], "reason": "retention"}
    say(events, last, event="pruned", **(said | changes))


@case("LG401", "plain", says="its pruned event names another manifest")
def a_checkpoint_that_is_gone_and_another_of_its_name_was_pruned(run: Path) -> None:
    edit(run, lambda events: prune(events, manifest_sha256=OTHER))
    shutil.rmtree(run / FIRST_CHECKPOINT)


@edited("LG401", "plain", says="is no checkpoint's path")
def a_pruned_event_of_something_else(events: Events) -> None:
    prune(events, path="evaluations")


@case("LG403", "plain", times=2, says="that of seq")
def a_pruned_checkpoint_of_another_state_than_the_log_had(run: Path) -> None:
    """Nothing but its event is left, and that says another model and another cursor than the update before."""
    shutil.rmtree(run / FIRST_CHECKPOINT)

    def change(events: Events) -> None:
        of_kind(events, "checkpoint")[0]["state"] |= {"model": OTHER, "cursor": OTHER}
        prune(events)

    edit(run, change)


@edited("LG602", "plain", says="although it began with a recipe of its own")
def an_amendment_of_a_fresh_run(events: Events) -> None:
    change = {"field": "optimizer.learning_rate", "from": 0.01, "to": 0.02, "class": "identity", "reason": ""}
    say(events, events[0], event="amendment", **change)


@edited("LG103", "resumed", says="bears the id of session 1")
def two_sessions_of_one_id(events: Events) -> None:
    first, second = of_kind(events, "session_start")
    second["session_id"] = first["session_id"]


@edited("LG205", "skipping", times=3, says="the reason is nonfinite_loss, but loss is 2.0")
def attempts_skipped_for_a_loss_that_was_finite(events: Events) -> None:
    for event in of_kind(events, "overflow"):
        event["loss"] = 2.0


@edited("LG309", "plain", says="which 3 replicas cannot share equally")
def replicas_that_cannot_share_a_microbatch(events: Events) -> None:
    events[0]["data_parallel"] = 3
