"""LG2: counters and measurements."""

from __future__ import annotations

from tests.corpus.runs.base import OTHER, edited, later, note_behind
from tests.ledger.audit.editing import Events, drop, of_kind, renumber


@edited("LG201", "interrupted")
def an_attempt_too_many(events: Events) -> None:
    events.append(note_behind(events[-1], attempts=events[-1]["attempts"] + 1))


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


@edited("LG207", "plain", times=2)
def a_checkpoint_captures_a_broken_state(events: Events) -> None:
    of_kind(events, "train")[2]["loss_last"] = "Infinity"


@edited("LG207", "plain", companions="LG703")
def a_complete_evaluation_is_not_finite(events: Events) -> None:
    """Its file says another loss: LG703."""
    of_kind(events, "val")[-1]["loss"] = "NaN"


@edited("LG208", "plain")
def a_rate_off_the_schedule(events: Events) -> None:
    of_kind(events, "train")[1]["lr"]["all"] *= 1 + 1e-9


@edited("LG209", "scaling", times=2)
def a_scale_that_no_law_gives(events: Events) -> None:
    of_kind(events, "train")[1]["loss_scale"] *= 2


@edited("LG209", "scaling", times=3)
def a_growth_tracker_that_was_forgotten(events: Events) -> None:
    train = of_kind(events, "train", session=2)[0]
    assert train["growth_tracker"] != 1
    train["growth_tracker"] = 1


@edited("LG209", "scaling", times=2)
def an_overflow_does_not_back_off(events: Events) -> None:
    overflow = of_kind(events, "overflow", session=2)[-1]
    overflow["loss_scale"]["after"] = overflow["loss_scale"]["before"]


@edited("LG209", "scaling")
def a_scale_is_not_stated(events: Events) -> None:
    train = of_kind(events, "train")[2]
    train["loss_scale"] = train["growth_tracker"] = None


@edited("LG209", "plain")
def a_scale_where_there_is_none(events: Events) -> None:
    train = of_kind(events, "train")[2]
    train["loss_scale"], train["growth_tracker"] = 1.0, 0


@edited("LG210", "plain", times=2)
def the_cursor_jumps(events: Events) -> None:
    of_kind(events, "train")[1]["cursor"]["train"]["offset"] += 8


@edited("LG210", "plain", times=3)
def a_dropped_tail_in_one_epoch_only(events: Events) -> None:
    """The second epoch has one microbatch more than the first; the last cursor then disagrees nowhere else."""
    cursor = of_kind(events, "train")[3]["cursor"]["train"]
    cursor["offset"] += 4


@edited("LG210", "plain", says="is not that of the cursor beside it, train (0, 32)")
def a_live_cursor_that_is_not_the_one_beside_it(events: Events) -> None:
    of_kind(events, "train")[1]["state"]["cursor"] = OTHER


@edited("LG210", "plain", says="the digest of the live cursor is None")
def a_start_whose_live_cursor_is_not_the_one_beside_it(events: Events) -> None:
    of_kind(events, "session_start")[0]["state"]["cursor"] = None


@edited("LG210", "weightless")
def an_end_whose_live_cursor_is_not_the_last_one(events: Events) -> None:
    of_kind(events, "session_end")[-1]["state"]["cursor"] = OTHER


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


@edited("LG212", "interrupted")
def more_seconds_than_elapsed(events: Events) -> None:
    of_kind(events, "train")[0]["window"]["seconds"] += 1_000.0


@edited("LG212", "plain")
def a_phase_is_shorter_than_its_events(events: Events) -> None:
    of_kind(events, "session_end")[0]["phases"]["checkpoint"] = 0.0


@edited("LG212", "plain")
def a_phase_of_a_completed_session_is_longer_than_its_events(events: Events) -> None:
    of_kind(events, "session_end")[0]["phases"]["evaluate"] += 0.5


@edited("LG214", "plain")
def an_evaluation_moves_a_generator(events: Events) -> None:
    of_kind(events, "val")[0]["rng_after"] = OTHER


@edited("LG215", "plain")
def clipped_without_a_norm_above_the_limit(events: Events) -> None:
    of_kind(events, "train")[1]["clipped"] = 1


@edited("LG215", "plain")
def more_clipped_than_updates(events: Events) -> None:
    train = of_kind(events, "train")[1]
    train["clipped"], train["grad_norm"], train["grad_norm_max"] = 2, 3.5, 3.5


def without(name: str) -> None:
    """Register a case in which a measurement of an applied update vanished."""

    def vanish(events: Events) -> None:
        of_kind(events, "train")[1][name] = None

    vanish.__name__ = f"{name}_vanished"
    edited("LG207", "plain")(vanish)


for measurement in ("loss", "loss_last", "grad_norm", "grad_norm_max", "lr"):
    without(measurement)


@edited("LG207", "weightless")
def a_loss_without_an_update(events: Events) -> None:
    train = of_kind(events, "train", session=1)[0]
    assert train["window"]["updates"] == 0
    train["loss"] = 1.0


@edited("LG207", "plain")
def a_negative_norm(events: Events) -> None:
    train = of_kind(events, "train")[1]
    train["grad_norm"] = train["grad_norm_max"] = -0.5


@edited("LG207", "plain")
def a_norm_above_the_greatest(events: Events) -> None:
    of_kind(events, "train")[1]["grad_norm"] = 0.75


@edited("LG207", "plain", says="yet that of the window's only update is")
def a_mean_that_is_not_that_of_its_only_update(events: Events) -> None:
    of_kind(events, "train")[1]["loss"] -= 0.5


@edited("LG208", "plain")
def no_group_has_a_rate(events: Events) -> None:
    of_kind(events, "train")[1]["lr"] = {}


@edited("LG208", "plain")
def an_invented_group_has_a_rate(events: Events) -> None:
    rates = of_kind(events, "train")[1]["lr"]
    rates["another"] = rates["all"]


@edited("LG204", "weightless")
def a_remainder_before_a_note(events: Events) -> None:
    end = of_kind(events, "session_end")[0]
    events.insert(end["seq"], note_behind(events[end["seq"] - 1]))
    renumber(events)
    of_kind(events, "session_start", session=2)[0]["superseded"]["events"] += 1
