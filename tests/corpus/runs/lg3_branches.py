"""LG301, LG302, LG305, LG501, LG601: runs that branched from another one, whose records lie in parent/."""

from __future__ import annotations

from pathlib import Path

from tests.corpus.runs.base import OTHER, case, edited
from tests.ledger.audit.branching import PARENT_CHECKPOINT
from tests.ledger.audit.editing import Events, of_kind


@case("LG601", "continued", says="cannot be read")
def the_parent_s_manifest_is_gone(run: Path) -> None:
    (run / "parent" / "manifest.json").unlink()


@case("LG601", "continued", says="was changed")
def the_parent_s_manifest_is_that_of_its_last_checkpoint(run: Path) -> None:
    """The copy has no parent beside it, so its own last checkpoint stands for that."""
    last = max((run / "checkpoints").iterdir())
    (run / "parent" / "manifest.json").write_bytes((last / "manifest.json").read_bytes())


@case("LG601", "initialised", says="cannot be read")
def the_parent_s_recipe_is_gone(run: Path) -> None:
    (run / "parent" / "recipe.json").unlink()


@case("LG406", "continued", says="is no record of a parent")
def a_foreign_file_beside_the_parent_s_records(run: Path) -> None:
    (run / "parent" / "model.safetensors").write_bytes(b"weights")


@edited("LG301", "continued", says="starts from another checkpoint than the one that the run says")
def a_parent_of_another_name_in_the_run_than_in_its_start(events: Events) -> None:
    events[0]["run"]["parent"]["run"] = "other"


@edited("LG301", "initialised", says="says that the run branched from itself")
def a_run_that_branched_from_itself(events: Events) -> None:
    events[0]["run"]["parent"]["run"] = events[0]["parent"]["run"] = events[0]["run_id"]


@edited("LG305", "continued", says="it is of run")
def a_parent_run_of_another_name(events: Events) -> None:
    events[0]["run"]["parent"]["run"] = events[0]["parent"]["run"] = "other"


@edited("LG305", "continued", says="session 1, step 4; it is of run")
def a_parent_checkpoint_of_another_step(events: Events) -> None:
    events[0]["parent"]["step"] += 1


@edited("LG305", "initialised", says="checkpoints/step-00000006-s01 is of run")
def a_parent_checkpoint_of_another_folder(events: Events) -> None:
    assert events[0]["parent"]["checkpoint"] == PARENT_CHECKPOINT
    events[0]["parent"]["checkpoint"] = "checkpoints/step-00000006-s01"


@edited("LG501", "continued", says="continues another run, but reads other data")
def a_continued_run_on_other_data(events: Events) -> None:
    for start in of_kind(events, "session_start"):
        start["data"]["train"] = OTHER


@edited("LG302", "initialised", says="the state of model")
def other_weights_than_the_parent_s(events: Events) -> None:
    events[0]["state"]["model"] = OTHER
