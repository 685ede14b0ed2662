"""LG603: locked runs and their locks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledger.records.layout import RECIPE_LOCK
from ledger.records.locks import RecipeLock
from ledger.records.parts import DataIdentities, LogPosition
from ledger.storage.documents import document_bytes, document_sha256, read_document
from tests.corpus.runs.base import OTHER, case, note_behind
from tests.ledger.audit.editing import Events, edit, of_kind, renumber


def relock(run: Path, **changes: Any) -> None:
    """Change the lock and make the run name the changed one."""
    lock = read_document(run / RECIPE_LOCK, RecipeLock).model_copy(update=changes)
    (run / RECIPE_LOCK).write_bytes(document_bytes(lock))

    def rename(events: Events) -> None:
        of_kind(events, "session_start")[0]["run"]["recipe_lock_sha256"] = document_sha256(lock)

    edit(run, rename)


def pilot(run: Path, **changes: Any) -> dict[str, Any]:
    """Return the lock's pilots with one of them changed."""
    first, *others = read_document(run / RECIPE_LOCK, RecipeLock).pilots
    return {"pilots": [first.model_copy(update=changes), *others]}


@case("LG603", "locked")
def another_target_than_the_lock(run: Path) -> None:
    relock(run, target_step=7, planned_tokens=7 * 16)


@case("LG603", "locked", times=2)
def another_setting_than_the_lock(run: Path) -> None:
    lock = read_document(run / RECIPE_LOCK, RecipeLock)
    relock(run, identity=lock.identity | {"optimizer.learning_rate": 0.02})


@case("LG603", "locked", times=2)
def other_data_than_the_lock(run: Path) -> None:
    relock(run, data=DataIdentities(train=OTHER, validation=OTHER))


@case("LG603", "locked", times=2)
def another_plan_of_checkpoints_than_the_lock(run: Path) -> None:
    relock(run, checkpoint={"policy": "final", "interval": None})


@case("LG603", "locked")
def a_lock_on_a_failed_pilot(run: Path) -> None:
    relock(run, **pilot(run, verdict="failed"))


@case("LG603", "locked")
def a_lock_on_no_pilot(run: Path) -> None:
    relock(run, pilots=[])


@case("LG603", "locked")
def a_lock_on_another_log_of_its_pilot(run: Path) -> None:
    first = read_document(run / RECIPE_LOCK, RecipeLock).pilots[0]
    relock(run, **pilot(run, log_head=LogPosition(first.log_head.seq, OTHER)))


@case("LG603", "locked")
def a_lock_that_miscounts_its_plan(run: Path) -> None:
    relock(run, planned_tokens=1)


@case("LG603", "locked", companions="LG602")
def an_amendment_under_a_lock(run: Path) -> None:
    """Nothing changed in the recipe, so LG602 refutes the amendment too."""

    def amend(events: Events) -> None:
        start = of_kind(events, "session_start", session=2)[0]
        amendment = note_behind(start) | {
            "event": "amendment",
            "field": "logging.interval",
            "from": 1,
            "to": 2,
            "class": "operational",
            "reason": "",
        }
        del amendment["text"]
        events.insert(events.index(start) + 1, amendment)
        renumber(events)

    edit(run, amend)
