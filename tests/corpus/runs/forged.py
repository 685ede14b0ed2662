"""Records that agree with themselves: files exchanged, copied back, or rewritten with everything else made to fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from ledger.records.documents import Evaluation
from ledger.records.events import encode_event
from ledger.records.layout import LOG
from ledger.storage.canonical import sha256_hex
from ledger.storage.chain import chain_line, first_chain
from ledger.storage.documents import document_bytes
from tests.corpus.runs.base import FIRST_CHECKPOINT, OTHER, case, edited, later
from tests.ledger.audit.editing import Events, drop, edit, of_kind, read_events, renumber, structure
from tests.ledger.audit.healthy import SMALL
from tests.support.toy import run_toy

LAST_CHECKPOINT = "checkpoints/step-00000006-s01"


def another(run: Path) -> Path:
    """Return another run of the same recipe, as honest as this one was."""
    other = run.with_name("another")
    run_toy(other, SMALL)
    return other


def exchange(run: Path, name: str, *, source: Path) -> None:
    """Put another run's file or folder in the place of this one's."""
    if (run / name).is_dir():
        shutil.rmtree(run / name)
        shutil.copytree(source / name, run / name)
    else:
        shutil.copyfile(source / name, run / name)


# Exchanged and copied back.


@case("LG401", "plain", companions="LG105", says="so the folder was copied from there")
def a_checkpoint_of_another_run(run: Path) -> None:
    """Its pin is on another log: LG105."""
    exchange(run, FIRST_CHECKPOINT, source=another(run))


@case("LG401", "plain", says=f"it is that of {FIRST_CHECKPOINT}, which was copied over this one")
def an_older_checkpoint_copied_over_the_last(run: Path) -> None:
    shutil.rmtree(run / LAST_CHECKPOINT)
    shutil.copytree(run / FIRST_CHECKPOINT, run / LAST_CHECKPOINT)


@case("LG407", "plain", times=2)
def an_older_model_copied_over_the_last(run: Path) -> None:
    shutil.copyfile(run / FIRST_CHECKPOINT / "model.safetensors", run / LAST_CHECKPOINT / "model.safetensors")


@case("LG105", "plain", companions="LG108 LG108 LG108", says="files of two runs were mixed")
def a_run_document_of_another_run(run: Path) -> None:
    """It names that run's id and session, too: LG108."""
    exchange(run, "run.json", source=another(run))


@case("LG105", "plain", times=3, says="the log was rewritten, or run.json stems from a copy of the run")
def a_first_line_rewritten_and_all_behind_it_chained_anew(run: Path) -> None:
    """It pins its first line in run.json and two others in checkpoints."""
    events = read_events(run)
    events[0]["host"] = "elsewhere"
    chain, lines = first_chain(events[0]["run_id"]), []
    for event in events:
        line, chain = chain_line(chain, encode_event(structure(event)))
        lines.append(line)
    (run / LOG).write_bytes(b"".join(lines))


@case("LG703", "plain", severity="missing", companions="LG601", says="is of another run")
def an_evaluation_of_another_run(run: Path) -> None:
    """Its bytes are not those that the log names: LG601."""
    exchange(run, "evaluations/validation-step-00000006-s01.json", source=another(run))


# Rewritten.


@edited("LG202", "plain", says="that of step 2 is missing")
def a_point_dropped_and_its_window_given_to_the_next(events: Events) -> None:
    """Only what is due every update tells; its seconds are made to fit, too."""
    first, second = of_kind(events, "train")[1:3]
    for name, amount in first["window"].items():
        second["window"][name] += amount
    second["batches"] = first["batches"] + second["batches"]
    drop(events, first)


@case("LG401", "plain", companions="LG212", says="the event was taken out of the log")
def a_checkpoint_event_taken_out(run: Path) -> None:
    """The seconds that it took are then in no event: LG212."""

    def change(events: Events) -> None:
        for event in of_kind(events, "checkpoint")[:1]:
            events[-1]["phases"]["checkpoint"] += 1.0
            drop(events, event)

    edit(run, change)


@edited("LG306", "resumed", says="other batches are listed")
def a_batch_of_superseded_work_exchanged(events: Events) -> None:
    of_kind(events, "train", session=1)[-1]["batches"][0] = OTHER[:16]


@edited("LG210", "resumed")
def a_cursor_ahead_in_superseded_work(events: Events) -> None:
    of_kind(events, "train", session=1)[-1]["cursor"]["train"]["offset"] += 8


@edited("LG107", "plain", companions="LG202")
def an_evaluation_before_the_updates_that_it_measured(events: Events) -> None:
    """The checkpoint behind it then captures what no window before it accounts for: LG202."""
    val = next(event for event in of_kind(events, "val") if event["step"] == 3)
    at = events.index(val)
    events[at - 1], events[at] = events[at], events[at - 1]
    renumber(events)


@edited("LG701", "plain", companions="LG702")
def a_checkpoint_beyond_the_target(events: Events) -> None:
    """Nothing was kept at the target itself: LG702."""
    events[0]["run"] |= {"target_step": 5, "planned_tokens": 80}
    events[-1]["target_step"] = 5


@edited("LG701", "plain", says="ended with the target 99")
def an_end_that_names_another_target(events: Events) -> None:
    events[-1]["target_step"] = 99


@edited("LG208", "plain", companions="LG207")
def two_faults_at_once(events: Events) -> None:
    """A rate off the schedule, and later a loss that is not a number: LG207."""
    trains = of_kind(events, "train")
    trains[1]["lr"]["all"] *= 2
    trains[3]["loss"] = "NaN"


@edited("LG703", "plain", says="it is called complete with 16 target positions, and so is that of seq")
def two_complete_evaluations_of_unequal_extent(events: Events) -> None:
    of_kind(events, "val")[1] |= {"complete": True, "tokens": 24}


@edited("LG107", "plain", severity="hint")
def a_wall_clock_that_goes_back(events: Events) -> None:
    for event in later(events, events[5]):
        event["time"] = "2020-01-01T00:00:00.000000Z"


@case("LG703", "resumed", times=2, companions="LG703:missing", says="it was made at step 6")
def an_evaluation_that_names_an_older_checkpoint(run: Path) -> None:
    """Of the final checkpoint there is then none."""
    path = run / "evaluations" / "validation-step-00000006-s02.json"
    manifest = (run / FIRST_CHECKPOINT / "manifest.json").read_bytes()
    document = json.loads(path.read_bytes()) | {"manifest_sha256": sha256_hex(manifest), "step": 3}
    data = document_bytes(Evaluation.model_validate(document))
    path.write_bytes(data)

    def change(events: Events) -> None:
        of_kind(events, "val")[-1]["evaluation"]["sha256"] = sha256_hex(data)

    edit(run, change)
