"""One way to break each rule, and exactly what must then be found.

A case names the honest run it starts from, what to do to it, and the rules that must be found in addition to what
that run lacks anyway. Where a fact stands in two rules by their very wording, both are listed, with the reason.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledger.records.fields import FIRST_DATA_CHAIN
from tests.ledger.audit.editing import Events, drop, edit, of_kind, read_events, renumber, rewrite_tail

CASES: list[Case] = []
OTHER = "ab" * 32


@dataclass(frozen=True, kw_only=True)
class Case:
    """A broken run and its findings."""

    rule: str
    name: str
    run: str
    do: Callable[[Path], object]
    severity: str = "error"
    companions: set[str] = field(default_factory=set)
    rehash: bool = False
    control: str | None = None


def case(
    rule: str,
    run: str,
    *,
    severity: str = "error",
    companions: str = "",
    rehash: bool = False,
    control: str | None = None,
) -> Callable[[Callable[[Path], object]], Callable[[Path], object]]:
    """Register a function that breaks a run."""

    def register(do: Callable[[Path], object]) -> Callable[[Path], object]:
        CASES.append(
            Case(
                rule=rule,
                name=do.__name__,
                run=run,
                do=do,
                severity=severity,
                companions=set(companions.split()),
                rehash=rehash,
                control=control,
            )
        )
        return do

    return register


def edited(
    rule: str, run: str, *, severity: str = "error", companions: str = "", control: str | None = None
) -> Callable[[Callable[[Events], object]], None]:
    """Register a function that changes the events of a run; everything else is made to agree."""

    def register(change: Callable[[Events], object]) -> None:
        def do(run_dir: Path) -> None:
            edit(run_dir, lambda events: (change(events), None)[1])

        do.__name__ = change.__name__
        case(rule, run, severity=severity, companions=companions, control=control)(do)

    return register


def later(events: Events, event: dict[str, Any]) -> Events:
    """Return an event and all behind it in its session."""
    return [
        other for other in events if other["session"] == event["session"] and other["seq"] >= event["seq"]
    ]


# LG1 ----------------------------------------------------------------------------------------------------------------


@case("LG101", "plain")
def a_space_in_the_note(run: Path) -> None:
    rewrite_tail(
        run,
        lambda bodies: [bodies[0].replace(b'"seq":', b'"seq": '), *bodies[1:]],
        keep=len(read_events(run)) - 2,
    )


@case("LG101", "plain", severity="missing")
def an_unknown_kind(run: Path) -> None:
    def change(bodies: list[bytes]) -> list[bytes]:
        return [bodies[0].replace(b'{"event":"note"', b'{"event":"surprise"'), *bodies[1:]]

    rewrite_tail(run, change, keep=len(read_events(run)) - 2)


@case("LG102", "plain")
def a_word_of_the_note_changed(run: Path) -> None:
    log = run / "metrics.jsonl"
    head, _, tail = log.read_bytes().rpartition(b"a note before")
    log.write_bytes(head + b"a vote before" + tail)


@case("LG103", "plain")
def the_last_seq_skips_one(run: Path) -> None:
    last = len(read_events(run)) - 1

    def change(bodies: list[bytes]) -> list[bytes]:
        return [bodies[0].replace(b'"seq":%d' % last, b'"seq":%d' % (last + 1))]

    rewrite_tail(run, change, keep=last)


@case("LG104", "interrupted", severity="missing")
def a_torn_tail(run: Path) -> None:
    with (run / "metrics.jsonl").open("ab") as log:
        log.write(b'{"event":"train","seq":')


@case("LG105", "plain")
def run_json_pins_another_line(run: Path) -> None:
    document = json.loads((run / "run.json").read_bytes())
    document["sessions"][0]["log"]["chain"] = OTHER
    (run / "run.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))


@case("LG105", "interrupted")
def the_log_is_cut_behind_a_checkpoint(run: Path) -> None:
    log = run / "metrics.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith(b'{"event":"checkpoint"'))
    log.write_bytes(b"".join(lines[: first - 1]))


@case("LG106", "plain")
def a_note_after_the_end(run: Path) -> None:
    def change(bodies: list[bytes]) -> list[bytes]:
        note, end = bodies
        seqs = [json.loads(body)["seq"] for body in (note, end)]
        again = note.replace(b'"seq":%d' % seqs[0], b'"seq":%d' % (seqs[1] + 1))
        elapsed = [json.loads(body)["elapsed"] for body in (note, end)]
        return [note, end, again.replace(b'"elapsed":%r' % elapsed[0], b'"elapsed":%r' % elapsed[1])]

    rewrite_tail(run, change, keep=len(read_events(run)) - 2)


@edited("LG107", "plain")
def elapsed_falls(events: Events) -> None:
    of_kind(events, "note")[-1]["elapsed"] = 0.0


@edited("LG107", "plain", severity="hint")
def the_wall_clock_jumps(events: Events) -> None:
    for event in later(events, of_kind(events, "note")[0]):
        event["time"] = event["time"].replace("20", "21", 1)


@case("LG108", "plain")
def run_json_has_another_target(run: Path) -> None:
    path = run / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"target_step":6', b'"target_step":7'))


@case("LG108", "plain", severity="warning")
def run_json_is_absent(run: Path) -> None:
    (run / "run.json").unlink()


@case("LG108", "plain")
def run_json_is_empty(run: Path) -> None:
    (run / "run.json").write_bytes(b"")


@case("LG108", "resumed", severity="warning")
def run_json_is_behind(run: Path) -> None:
    document = json.loads((run / "run.json").read_bytes())
    del document["sessions"][1]
    (run / "run.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))


# LG2 ----------------------------------------------------------------------------------------------------------------


@edited("LG201", "interrupted")
def an_attempt_too_many(events: Events) -> None:
    events.append(note_behind(events[-1], attempts=events[-1]["attempts"] + 1))


def note_behind(event: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a note that stands behind an event."""
    names = [
        "session",
        "time",
        "elapsed",
        "step",
        "attempts",
        "skipped",
        "microbatches",
        "tokens_seen",
        "loss_tokens",
    ]
    return (
        {"event": "note", "seq": event["seq"] + 1}
        | {name: event[name] for name in names}
        | {"text": ""}
        | changes
    )


@edited("LG202", "plain")
def a_window_counts_less(events: Events) -> None:
    of_kind(events, "train")[2]["window"]["loss_tokens"] -= 1


@edited("LG202", "interrupted")
def a_killed_session_is_ahead_of_its_interval(events: Events) -> None:
    last = events[-1]
    ahead = {name: last[name] + 1 for name in ("step", "attempts")}
    tokens = {name: last[name] + 16 for name in ("tokens_seen", "loss_tokens")}
    events.append(note_behind(last, microbatches=last["microbatches"] + 2, **ahead, **tokens))


@edited("LG203", "resumed")
def a_token_too_many_in_superseded_work(events: Events) -> None:
    train = of_kind(events, "train", session=1)[-1]
    train["window"]["tokens"] += 1
    for event in later(events, train):
        event["tokens_seen"] += 1
    of_kind(events, "session_start", session=2)[0]["superseded"]["tokens"] += 1


@edited("LG203", "plain", companions="LG704")
def a_token_too_many_on_the_branch(events: Events) -> None:
    """The branch's total is then not explained by its attempts either: LG704 says the same of the whole."""
    train = of_kind(events, "train")[4]
    train["window"]["tokens"] += 1
    for event in later(events, train):
        event["tokens_seen"] += 1
        if event["event"] == "checkpoint":
            event["at"]["tokens_seen"] += 1


@edited("LG204", "resumed")
def a_window_is_cut_in_superseded_work(events: Events) -> None:
    """One microbatch is logged with the window before it."""
    before, after = of_kind(events, "train", session=1)[-2:]
    before["batches"].append(after["batches"].pop(0))
    before["data_chain"] = OTHER
    for name, tokens in (("microbatches", 1), ("tokens", 8), ("loss_tokens", 8)):
        before["window"][name] += tokens
        after["window"][name] -= tokens
    epoch_end = before["cursor"]["train"]["offset"] + 8 == 56
    before["cursor"]["train"]["offset"] += 8
    assert not epoch_end
    for event in events:
        if event["session"] == 1 and before["seq"] <= event["seq"] < after["seq"]:
            event["microbatches"] += 1
            event["tokens_seen"] += 8
            event["loss_tokens"] += 8


@edited("LG205", "skipping")
def consecutive_starts_anew(events: Events) -> None:
    of_kind(events, "overflow")[1]["consecutive"] = 1


@edited("LG205", "skipping")
def a_skip_is_not_reported(events: Events) -> None:
    drop(events, of_kind(events, "overflow")[2])


@edited("LG206", "interrupted")
def a_counter_falls(events: Events) -> None:
    events.append(note_behind(events[-1], loss_tokens=events[-1]["loss_tokens"] - 1))


@edited("LG207", "plain")
def a_loss_is_not_finite(events: Events) -> None:
    of_kind(events, "train")[1]["loss"] = "NaN"


@edited("LG207", "plain")
def a_checkpoint_captures_a_broken_state(events: Events) -> None:
    of_kind(events, "train")[2]["loss_last"] = "Infinity"


@edited("LG207", "plain")
def a_complete_evaluation_is_not_finite(events: Events) -> None:
    of_kind(events, "val")[-1]["loss"] = "NaN"


@edited("LG208", "plain")
def a_rate_off_the_schedule(events: Events) -> None:
    of_kind(events, "train")[1]["lr"]["all"] *= 1 + 1e-9


@edited("LG210", "plain")
def the_cursor_jumps(events: Events) -> None:
    of_kind(events, "train")[1]["cursor"]["train"]["offset"] += 8


@edited("LG210", "plain")
def a_dropped_tail_in_one_epoch_only(events: Events) -> None:
    """The second epoch has one microbatch more than the first; the last cursor then disagrees nowhere else."""
    cursor = of_kind(events, "train")[3]["cursor"]["train"]
    cursor["offset"] += 4


@edited("LG211", "plain", severity="missing")
def one_batch_recurs(events: Events) -> None:
    first, second = of_kind(events, "train")[:2]
    second["batches"][0] = first["batches"][1]


@edited("LG211", "plain")
def a_stretch_of_batches_recurs(events: Events) -> None:
    first, second = of_kind(events, "train")[:2]
    second["batches"] = list(first["batches"])


@edited("LG211", "repeating")
def a_repetition_is_not_one(events: Events) -> None:
    of_kind(events, "train")[3]["batches"][0] = "ab" * 8


@edited("LG214", "plain")
def an_evaluation_moves_a_generator(events: Events) -> None:
    of_kind(events, "val")[0]["rng_after"] = OTHER


@edited("LG215", "plain")
def clipped_without_a_norm_above_the_limit(events: Events) -> None:
    of_kind(events, "train")[1]["clipped"] = 1


@edited("LG215", "plain")
def more_clipped_than_updates(events: Events) -> None:
    train = of_kind(events, "train")[1]
    train["clipped"], train["grad_norm_max"] = 2, 3.5


# LG3 ----------------------------------------------------------------------------------------------------------------


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


@edited("LG304", "plain", severity="missing", companions="LG701")
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
    of_kind(events, "train", session=2)[0]["grad_norm"] = 0.75


@edited("LG307", "closing", severity="warning", companions="LG701")
def a_session_without_update_is_not_closed(events: Events) -> None:
    """Its branch then stands at the target without a last session that says so: LG701."""
    of_kind(events, "session_end")[-1]["status"] = "stopped"


@edited("LG308", "resumed")
def a_second_session_starts_silently(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["start"] = "fresh"


@edited("LG309", "resumed")
def more_replicas_in_the_second_session(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["data_parallel"] = 2


# LG4 ----------------------------------------------------------------------------------------------------------------

FIRST_CHECKPOINT = "checkpoints/step-00000003-s01"


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


@case("LG402", "plain", rehash=True)
def a_byte_of_a_tensor_is_flipped(run: Path) -> None:
    path = run / FIRST_CHECKPOINT / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@case("LG403", "plain")
def trainer_json_is_of_another_step(run: Path) -> None:
    def other_step(trainer: dict[str, Any]) -> None:
        trainer["counters"] = trainer["counters"] | {"step": 99}

    edit(run, lambda events: None, trainer=other_step)


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


# LG5 ----------------------------------------------------------------------------------------------------------------


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


# LG6 ----------------------------------------------------------------------------------------------------------------


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


@edited("LG605", "moved", severity="warning")
def nothing_but_another_environment(events: Events) -> None:
    copy.copy(events)


# LG7 ----------------------------------------------------------------------------------------------------------------


@edited("LG701", "interrupted")
def completed_short_of_the_target(events: Events) -> None:
    end = note_behind(events[-1])
    del end["text"]
    phases = dict.fromkeys(("startup", "train", "data", "evaluate", "checkpoint", "report", "profile"), 0.0)
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
            "manifest_sha256": OTHER,
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


# LG8 ----------------------------------------------------------------------------------------------------------------


@edited("LG801", "plain", control="resumed")
def the_control_starts_from_another_seed(events: Events) -> None:
    of_kind(events, "session_start")[0]["state"]["rng"] = OTHER


@edited("LG802", "resumed", control="plain")
def other_data_after_the_resume(events: Events) -> None:
    of_kind(events, "train", session=2)[-1]["data_chain"] = OTHER


@edited("LG803", "resumed", control="plain")
def another_loss_after_the_resume(events: Events) -> None:
    of_kind(events, "train", session=2)[-1]["loss_last"] = 7.0


@edited("LG804", "resumed", control="plain")
def other_weights_after_the_resume(events: Events) -> None:
    of_kind(events, "train", session=2)[-1]["state"]["model"] = OTHER
