"""LG5, LG210, LG211: data, cursors and orders, of groups and mixes too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.corpus.runs.base import OTHER, case, edited, later, note_behind
from tests.ledger.audit.editing import Events, edit, of_kind, renumber
from tests.ledger.audit.reading import TEXTS, one_source, run_on


def train_anew(run: Path, documents: list[list[int]], **options: Any) -> None:
    """Put in the place of a run another one, on other documents."""
    shutil.rmtree(run)
    shutil.rmtree(run.parent / f"{run.name}-data")
    run_on(run, one_source(run, documents, **options))


@case("LG504", "on_dataset", rehash=True)
def a_held_out_text_was_trained_on(run: Path) -> None:
    train_anew(run, TEXTS, held_out=[[4, 2, 0], TEXTS[5]])


@case("LG504", "on_dataset", rehash=True)
def an_id_is_not_in_the_vocabulary(run: Path) -> None:
    train_anew(run, [*TEXTS, [300, 0]])


@case("LG504", "on_dataset", rehash=True)
def an_end_of_text_stands_inside_a_text(run: Path) -> None:
    train_anew(run, [*TEXTS, [7, 0, 7, 0]])


@edited("LG503", "on_dataset")
def a_shard_was_found_damaged_while_training(events: Events) -> None:
    verified = note_behind(events[-2])
    del verified["text"]
    verified |= {"event": "data_verified", "shard": "train-00000.npy", "sha256": OTHER, "seconds": 0.0}
    events.insert(-1, verified)
    renumber(events)


@edited("LG210", "mixed", companions="LG505 LG505", times=2)
def the_other_source_of_a_mix_moves(events: Events) -> None:
    """From one event on: the branch's last cursor is then wrong, source by source, though its sum is right."""
    moved = of_kind(events, "train")[12]
    for event in events:
        if "cursor" in event and event["seq"] >= moved["seq"]:
            for source, step in (("books", 8), ("web", -8)):
                position = event["cursor"][source]
                length = {"books": 64, "web": 64}[source]
                at = position["epoch"] * length + position["offset"] + step
                position["epoch"], position["offset"] = divmod(at, length)


@case("LG215", "packed", rehash=True)
def a_position_counts_that_lies_across_an_end(run: Path) -> None:
    def change(events: Events) -> None:
        train = of_kind(events, "train")[-1]
        train["window"]["loss_tokens"] += 1
        for event in later(events, train):
            event["loss_tokens"] += 1
            if event["event"] == "checkpoint":
                event["at"]["loss_tokens"] += 1

    edit(run, change)


@edited("LG211", "shuffled", companions="LG506 LG506 LG506 LG506 LG506 LG506 LG506")
def a_shuffled_epoch_is_read_as_the_one_before(events: Events) -> None:
    """The shards at hand hold another order: LG506."""
    trains = of_kind(events, "train")
    batches = [digest for event in trains for digest in event["batches"]]
    again = iter([*batches[:8], *batches[:8], *batches[16:]])
    for event in trains:
        event["batches"] = [next(again) for _ in event["batches"]]


@edited("LG506", "shuffled")
def a_batch_that_the_shuffled_shards_do_not_hold(events: Events) -> None:
    of_kind(events, "train")[4]["batches"][1] = "ab" * 8


@edited("LG506", "mixed")
def a_batch_that_no_source_of_the_mix_holds(events: Events) -> None:
    of_kind(events, "train")[0]["batches"][0] = "ab" * 8  # the first is always in the sample
