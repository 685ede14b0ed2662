"""LG3, LG4: sessions and checkpoints."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ledger.records.fields import FIRST_DATA_CHAIN
from ledger.storage.canonical import digest_of, sha256_hex
from ledger.storage.digests import tensor_table_sha256
from ledger.storage.safetensors import scan_tensors
from tests.corpus.runs.base import FIRST_CHECKPOINT, OTHER, case, edited
from tests.ledger.audit.editing import (
    Events,
    change_nothing,
    drop,
    edit,
    of_kind,
)
from tests.support.toy import Tensors, ToyLoop, write_safetensors


@edited("LG301", "resumed")
def a_parent_nobody_knows(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["parent"]["manifest_sha256"] = OTHER


@edited("LG302", "resumed")
def a_generator_was_not_restored(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["state"]["rng"] = OTHER


@edited("LG302", "plain")
def a_fresh_run_with_a_used_data_chain(events: Events) -> None:
    start = of_kind(events, "session_start")[0]
    assert start["data_chain"] == FIRST_DATA_CHAIN
    start["data_chain"] = OTHER


@edited("LG303", "resumed")
def less_is_superseded_than_said(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["superseded"]["updates"] += 1


@edited("LG304", "plain", severity="missing", companions="LG701:missing")
def the_end_is_missing(events: Events) -> None:
    """Nothing then says that the target was reached on purpose: LG701."""
    drop(events, events[-1])


@edited("LG305", "resumed")
def a_parent_of_another_step(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["parent"]["step"] += 1


@edited("LG306", "resumed")
def redone_work_has_another_loss(events: Events) -> None:
    train = of_kind(events, "train", session=2)[0]
    train["loss"] = train["loss_last"] = 7.0


@edited("LG306", "resumed")
def redone_work_reads_other_data(events: Events) -> None:
    of_kind(events, "train", session=2)[0]["data_chain"] = OTHER


@edited("LG306", "resumed", severity="hint", companions="LG601")
def redone_work_differs_in_an_unknown_environment(events: Events) -> None:
    """The environment's file is then not there: LG601."""
    of_kind(events, "session_start", session=2)[0]["environment_sha256"] = OTHER
    train = of_kind(events, "train", session=2)[0]
    train["grad_norm"] = train["grad_norm_max"] = 0.75


@edited("LG307", "closing", severity="warning", companions="LG701:missing")
def a_session_without_update_is_not_closed(events: Events) -> None:
    """Its branch then stands at the target without a last session that says so: LG701."""
    of_kind(events, "session_end")[-1]["status"] = "stopped"


@edited("LG308", "resumed")
def a_second_session_starts_silently(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["start"] = "fresh"


@edited("LG309", "resumed")
def more_replicas_in_the_second_session(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["data_parallel"] = 2


@case("LG309", "resumed")
def another_number_of_generators(run: Path) -> None:
    """The digest of the generators' state is made to agree, as a loop of other ranks would report it."""

    def more(trainer: dict[str, Any]) -> None:
        if trainer["session"] == 2:
            trainer["rng"] = [trainer["rng"], trainer["rng"]]

    def change(events: Events) -> None:
        for event in of_kind(events, "checkpoint", session=2):
            trainer = json.loads((run / event["path"] / "trainer.json").read_bytes())
            event["state"]["rng"] = digest_of([trainer["rng"], trainer["rng"]])
            for train in of_kind(events, "train"):
                if train["seq"] == event["at"]["seq"]:
                    train["state"]["rng"] = event["state"]["rng"]

    edit(run, change, trainer=more)


@case("LG401", "plain")
def a_checkpoint_is_gone(run: Path) -> None:
    shutil.rmtree(run / FIRST_CHECKPOINT)


@case("LG401", "plain")
def a_file_of_a_checkpoint_is_gone(run: Path) -> None:
    (run / FIRST_CHECKPOINT / "optimizer.safetensors").unlink()


@case("LG401", "plain")
def a_manifest_was_edited(run: Path) -> None:
    path = run / FIRST_CHECKPOINT / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"kind":"interval"', b'"kind":"milestone"'))


@case("LG402", "plain")
def a_file_is_one_byte_short(run: Path) -> None:
    path = run / FIRST_CHECKPOINT / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


@case("LG402", "plain", rehash=True, times=2)
def a_byte_of_a_tensor_is_flipped(run: Path) -> None:
    path = run / FIRST_CHECKPOINT / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@case("LG403", "plain", times=2)
def trainer_json_is_of_another_step(run: Path) -> None:
    def other_step(trainer: dict[str, Any]) -> None:
        trainer["counters"] = trainer["counters"] | {"step": 99}

    edit(run, change_nothing, trainer=other_step)


def replace_tensors(
    run: Path,
    file: str,
    tensors: Tensors,
    *,
    folder: str = FIRST_CHECKPOINT,
    step: int = 3,
    was_live: bool = True,
) -> None:
    """Write another tensor file into a checkpoint, as if it were what the live state had been (or not)."""
    part = file.partition(".")[0]

    def change(events: Events) -> None:
        manifest_path = run / folder / "manifest.json"
        manifest = json.loads(manifest_path.read_bytes())
        event = next(event for event in of_kind(events, "checkpoint") if event["path"] == folder)
        seq, session = event["at"]["seq"], event["session"]
        marks = json.dumps({"step": step, "session": session, "seq": seq}, separators=(",", ":"))
        path = run / folder / file
        write_safetensors(path, tensors, {"ledger": marks})
        entries, data = scan_tensors(path).entries, path.read_bytes()
        described = {name: entry.model_dump() for name, entry in entries.items()}
        event["bytes"] += len(data) - manifest["files"][file]["bytes"]
        manifest["files"][file] = {"bytes": len(data), "sha256": sha256_hex(data), "tensors": described}
        manifest_path.write_text(json.dumps(manifest))
        standing = [train for train in of_kind(events, "train") if train["seq"] <= seq][-1]
        for known in (event, standing) if was_live else ():
            known["state"][part] = tensor_table_sha256(entries)

    edit(run, change)


def replace_model(run: Path, *, value: float, step: int) -> None:
    """Write another model file into the first checkpoint."""
    replace_tensors(run, "model.safetensors", {"weight": np.array([value])}, step=step)


@case("LG213", "resumed")
def weights_of_the_parent_after_three_more_updates(run: Path) -> None:
    parent = ToyLoop()
    parent.restore_tensors(run / FIRST_CHECKPOINT)
    tensors, last = parent.model_tensors(), "checkpoints/step-00000006-s02"
    replace_tensors(run, "model.safetensors", tensors, folder=last, step=6)


@case("LG404", "plain")
def an_optimizer_that_counted_a_skipped_attempt(run: Path) -> None:
    tensors = ToyLoop(weight=1.0, updates=4).optimizer_tensors()
    replace_tensors(run, "optimizer.safetensors", tensors)


@case("LG404", "plain")
def an_optimizer_whose_step_is_not_a_number(run: Path) -> None:
    tensors = ToyLoop(weight=1.0, updates=3).optimizer_tensors()
    replace_tensors(run, "optimizer.safetensors", tensors | {"all/bias/step": np.array(np.nan, dtype="<f4")})


@case("LG404", "plain", severity="hint")
def a_parameter_that_no_gradient_reached(run: Path) -> None:
    tensors = ToyLoop(weight=1.0, updates=3).optimizer_tensors()
    replace_tensors(run, "optimizer.safetensors", tensors | {"all/bias/step": np.array(1, dtype="<f4")})


@case("LG405", "plain", rehash=True)
def a_weight_is_not_a_number(run: Path) -> None:
    replace_model(run, value=float("nan"), step=3)


@case("LG407", "plain", times=2)
def a_model_of_another_step(run: Path) -> None:
    replace_model(run, value=5.0, step=2)


@case("LG407", "plain", rehash=True, says="1 of 1 numbers of weight are not its master weights")
def master_weights_of_another_moment(run: Path) -> None:
    tensors = ToyLoop(weight=1.0, updates=3).optimizer_tensors()
    replace_tensors(run, "optimizer.safetensors", tensors | {"all/weight/master": np.array([5.0])})


@case("LG408", "plain")
def weights_that_moved_before_they_were_saved(run: Path) -> None:
    replace_tensors(run, "model.safetensors", {"weight": np.array([1.0])}, was_live=False)


@case("LG408", "plain")
def an_optimizer_without_its_moments(run: Path) -> None:
    steps = {"all/weight/step": np.array(3, dtype="<f4")}
    replace_tensors(run, "optimizer.safetensors", steps, was_live=False)


@case("LG406", "plain")
def a_foreign_file_among_the_checkpoints(run: Path) -> None:
    (run / "checkpoints" / "latest").write_text("step-00000003-s01")


@case("LG406", "plain")
def a_link_named_like_a_checkpoint(run: Path) -> None:
    (run / "checkpoints" / "step-00000099-s01").symlink_to(run / FIRST_CHECKPOINT)


@case("LG406", "plain")
def a_foreign_file_in_a_checkpoint(run: Path) -> None:
    (run / FIRST_CHECKPOINT / "extra.bin").write_bytes(b"x")


@case("LG406", "plain", severity="warning")
def a_temporary_folder_of_a_crash(run: Path) -> None:
    (run / "checkpoints" / ".step-00000004-s01.tmp-0123456789abcdef").mkdir()


@case("LG406", "plain")
def run_json_in_other_case(run: Path) -> None:
    (run / "Run.json").write_bytes(b"{}")


@edited("LG303", "resumed")
def a_killed_session_is_called_ended(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["previous_session"] = "ended"


@edited("LG403", "plain")
def an_event_of_another_size(events: Events) -> None:
    of_kind(events, "checkpoint")[0]["bytes"] += 1


@edited("LG403", "plain")
def an_event_of_another_kind(events: Events) -> None:
    of_kind(events, "checkpoint")[0]["kind"] = "milestone"


@edited("LG403", "plain")
def a_train_event_of_another_state_than_its_checkpoint(events: Events) -> None:
    seq = of_kind(events, "checkpoint")[0]["at"]["seq"]
    [train for train in of_kind(events, "train") if train["seq"] <= seq][-1]["state"]["model"] = OTHER


@case("LG403", "plain", times=2)
def a_copied_checkpoint(run: Path) -> None:
    """It is complete and pinned, but no crash left it: nobody calls it usable."""
    shutil.copytree(run / FIRST_CHECKPOINT, run / "checkpoints" / "step-00000004-s01")


@case("LG406", "plain")
def a_foreign_file_in_the_run(run: Path) -> None:
    (run / "best").write_text("step-00000003-s01")


@case("LG406", "plain")
def a_foreign_recipe(run: Path) -> None:
    (run / "recipes" / "new.json").write_text("{}")


@case("LG406", "plain")
def an_environment_that_is_not_what_its_name_says(run: Path) -> None:
    (run / "environments" / f"{OTHER}.json").write_text("{}")


@case("LG406", "plain")
def a_pipe_among_the_evaluations(run: Path) -> None:
    os.mkfifo(run / "evaluations" / "later.json")


@case("LG406", "plain")
def a_pipe_in_the_place_of_a_folder(run: Path) -> None:
    os.mkfifo(run / "logs")


@case("LG406", "plain", severity="warning")
def a_log_with_a_second_name(run: Path) -> None:
    os.link(run / "metrics.jsonl", run.parent / "second.jsonl")
