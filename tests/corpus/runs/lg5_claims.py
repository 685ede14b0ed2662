"""LG5 to LG8: data, recipes, completion, equivalence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from ledger.records.documents import Environment, Evaluation
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import document_bytes
from tests.corpus.runs.base import OTHER, case, edited, note_behind
from tests.corpus.runs.lg3_lineage import replace_tensors
from tests.ledger.audit.editing import Events, change_nothing, edit, of_kind, renumber


@edited("LG501", "resumed")
def the_second_session_reads_other_data(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["data"]["train"] = OTHER


@case("LG502", "on_dataset")
def a_shard_is_cut(run: Path) -> None:
    path = next((run.parent / "on_dataset-data").glob("train-00000.npy"))
    path.write_bytes(path.read_bytes()[:-2])


@case("LG503", "on_dataset", rehash=True)
def a_byte_of_the_tokenizer_is_flipped(run: Path) -> None:
    (run.parent / "on_dataset-data" / "tokenizer.json").write_bytes(b"[]")


@edited("LG505", "plain", companions="LG302")
def the_cursor_is_ahead_from_the_start(events: Events) -> None:
    """A cursor that is wrong everywhere by as much is wrong at the start, too: LG302."""
    for event in events:
        if "cursor" in event:
            cursor = event["cursor"]["train"]
            ahead = cursor["epoch"] * 56 + cursor["offset"] + 8
            cursor["epoch"], cursor["offset"] = divmod(ahead, 56)


@edited("LG506", "on_dataset")
def a_batch_that_the_shards_do_not_hold(events: Events) -> None:
    of_kind(events, "train")[4]["batches"][1] = "ab" * 8


@case("LG601", "plain")
def an_environment_is_gone(run: Path) -> None:
    next((run / "environments").iterdir()).unlink()


@case("LG601", "plain")
def an_evaluation_was_edited(run: Path) -> None:
    path = next((run / "evaluations").iterdir())
    path.write_bytes(path.read_bytes().replace(b'"batches":2', b'"batches":3'))


@edited("LG601", "resumed")
def the_second_session_has_another_identity(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["identity_sha256"] = OTHER


@edited("LG602", "sparse")
def an_amendment_that_the_recipes_do_not_show(events: Events) -> None:
    of_kind(events, "amendment")[-1]["from"] = 1


@case("LG604", "moved", severity="warning")
def nothing_but_other_code(run: Path) -> None:
    """The two environments also differ in a package: LG605. The code of the second is made another one."""

    def change(events: Events) -> None:
        start = of_kind(events, "session_start", session=2)[0]
        path = run / "environments" / f"{start['environment_sha256']}.json"
        document = json.loads(path.read_bytes())
        document["code"] = {"commit": "1234567", "dirty": False, "diff_sha256": None}
        data = document_bytes(Environment.model_validate(document))
        start["environment_sha256"] = sha256_hex(data)
        path.with_name(f"{start['environment_sha256']}.json").write_bytes(data)

    edit(run, change)


@edited("LG605", "moved", severity="warning", times=0)
def nothing_but_another_environment(events: Events) -> None:
    del events[len(events) :]


@edited("LG701", "interrupted", instead_of="LG304:missing LG701:missing")
def completed_short_of_the_target(events: Events) -> None:
    end = note_behind(events[-1])
    del end["text"]
    phases = dict.fromkeys(("startup", "train", "data", "evaluate", "checkpoint", "report", "profile"), 0.0)
    for event in of_kind(events, "train"):
        phases["train"] += event["window"]["seconds"]
        phases["data"] += event["window"]["data_seconds"]
    for kind, phase in (("val", "evaluate"), ("checkpoint", "checkpoint")):
        phases[phase] += sum(event["seconds"] for event in of_kind(events, kind))
    events.append(
        end
        | {"event": "session_end", "status": "completed", "reason": "", "target_step": 6}
        | {"state": None, "phases": phases, "error": None}
    )


@case("LG702", "plain")
def the_final_checkpoint_was_pruned(run: Path) -> None:
    def change(events: Events) -> None:
        pruned = note_behind(events[-2])
        del pruned["text"]
        pruned |= {
            "event": "pruned",
            "path": "checkpoints/step-00000006-s01",
            "manifest_sha256": of_kind(events, "checkpoint")[-1]["manifest_sha256"],
            "reason": "",
        }
        events.insert(-1, pruned)
        renumber(events)

    edit(run, change)
    shutil.rmtree(run / "checkpoints" / "step-00000006-s01")


@case("LG703", "plain", severity="missing")
def the_evaluation_names_nothing(run: Path) -> None:
    def change(events: Events) -> None:
        for event in of_kind(events, "val"):
            event["evaluation"] = None

    edit(run, change)
    shutil.rmtree(run / "evaluations")


@edited("LG704", "plain")
def the_plan_is_for_another_geometry(events: Events) -> None:
    of_kind(events, "session_start")[0]["run"]["planned_tokens"] += 8


@edited("LG801", "plain", control="resumed")
def the_control_starts_from_another_seed(events: Events) -> None:
    of_kind(events, "session_start")[0]["state"]["rng"] = OTHER


@edited("LG802", "resumed", control="plain")
def other_data_after_the_resume(events: Events) -> None:
    of_kind(events, "train", session=2)[-1]["data_chain"] = OTHER


@edited("LG803", "resumed", control="plain")
def another_loss_after_the_resume(events: Events) -> None:
    of_kind(events, "train", session=2)[-1].update(loss=7.0, loss_last=7.0)


@case("LG804", "resumed", control="plain")
def other_weights_after_the_resume(run: Path) -> None:
    """The final checkpoint was then taken of them, too."""
    tensors = {"weight": np.array([7.0])}
    replace_tensors(run, "model.safetensors", tensors, folder="checkpoints/step-00000006-s02", step=6)


@edited("LG506", "on_dataset")
def a_data_chain_that_the_batches_do_not_make(events: Events) -> None:
    of_kind(events, "train")[4]["data_chain"] = OTHER


@edited("LG106", "plain")
def a_completed_session_with_an_error(events: Events) -> None:
    of_kind(events, "session_end")[0]["error"] = "boom"


@edited("LG106", "plain")
def an_end_with_a_final_state_beside_a_checkpoint(events: Events) -> None:
    of_kind(events, "session_end")[0]["state"] = of_kind(events, "train")[-1]["state"]


@edited("LG701", "plain")
def an_end_with_another_target(events: Events) -> None:
    of_kind(events, "session_end")[0]["target_step"] = 99


@edited("LG701", "plain", companions="LG307:warning")
def closed_on_a_parent_that_is_not_there(events: Events) -> None:
    """It made updates: LG307."""
    of_kind(events, "session_end")[0]["status"] = "closed"


def change_evaluation(run: Path, **changes: object) -> None:
    """Change the file of the final evaluation; the event names its new digest."""
    path = next((run / "evaluations").iterdir())
    document = json.loads(path.read_bytes()) | changes
    path.write_bytes(document_bytes(Evaluation.model_validate(document)))
    edit(run, change_nothing)


@case("LG703", "plain")
def an_evaluation_with_another_loss_than_its_event(run: Path) -> None:
    change_evaluation(run, loss=0.125)


@case("LG703", "plain")
def an_evaluation_with_other_tokens_than_its_event(run: Path) -> None:
    change_evaluation(run, tokens=3)


@case("LG703", "plain", companions="LG703:missing")
def an_evaluation_of_another_step(run: Path) -> None:
    change_evaluation(run, step=3)


@case("LG703", "plain", severity="missing")
def the_final_evaluation_is_of_the_training_split(run: Path) -> None:
    edit(run, lambda events: of_kind(events, "val")[-1].update(split="train"))
    change_evaluation(run, split="train")


@case("LG703", "plain", severity="missing")
def the_final_evaluation_is_named_by_no_event(run: Path) -> None:
    def change(events: Events) -> None:
        for event in of_kind(events, "val"):
            event["evaluation"] = None

    edit(run, change)


@case("LG703", "on_dataset")
def a_subset_is_called_complete(run: Path) -> None:
    """Of the two target positions that the held-out text has one was measured."""

    def change(events: Events) -> None:
        measured["data_sha256"] = of_kind(events, "session_start")[0]["data"]["train"]
        of_kind(events, "val")[-1].update(measured)

    measured: dict[str, object] = {"tokens": 1}
    edit(run, change)
    change_evaluation(run, **measured)


@edited("LG804", "plain", severity="missing")
def the_state_that_the_recipe_asks_for_vanished(events: Events) -> None:
    of_kind(events, "train")[1]["state"] = None
