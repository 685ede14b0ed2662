"""What goes wrong in the field, where no other case shows it: the trace that each kind leaves in the records."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.corpus.runs.base import FIRST_CHECKPOINT, OTHER, case, edited, later
from tests.corpus.runs.lg3_lineage import replace_tensors
from tests.ledger.audit.editing import Events, of_kind
from tests.support.toy import ToyLoop

LOG = "metrics.jsonl"


def lines_of(run: Path) -> list[bytes]:
    """Return the lines of a log with their newlines."""
    return (run / LOG).read_bytes().splitlines(keepends=True)


def write_lines(run: Path, lines: list[bytes]) -> None:
    """Put these lines in the log's place, their chain untouched."""
    (run / LOG).write_bytes(b"".join(lines))


# Optimizer, schedule, scaler.


@edited("LG208", "warming", times=6, says="the schedule gives")
def a_schedule_that_counts_skipped_attempts(events: Events) -> None:
    """The first attempt that is skipped is the second, so all rates from update 2 of the warm-up are ahead."""
    for train in of_kind(events, "train"):
        if train["lr"]:
            train["lr"]["all"] = 0.01 * min(1.0, train["attempts"] / 8)


@edited("LG208", "warming", times=3)
def a_rate_that_starts_anew_after_the_resume(events: Events) -> None:
    start = of_kind(events, "session_start", session=2)[0]
    for train in of_kind(events, "train", session=2):
        train["lr"]["all"] = 0.01 * (train["step"] - start["step"]) / 8


@edited("LG208", "warming", times=3)
def a_rate_bent_by_a_longer_warm_up_after_the_resume(events: Events) -> None:
    for train in of_kind(events, "train", session=2):
        train["lr"]["all"] = 0.01 * train["step"] / 16


@edited("LG302", "resumed", says="optimizer")
def master_weights_that_were_made_of_the_rounded_ones(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["state"]["optimizer"] = OTHER


@edited("LG306", "resumed", says="at step 5 loss is 7.5")
def the_first_redone_update_is_equal_and_the_second_is_not(events: Events) -> None:
    train = of_kind(events, "train", session=2)[1]
    train["loss"] = train["loss_last"] = 7.5


# What step and tokens mean.


@case("LG404", "plain")
def a_step_was_counted_though_its_update_was_skipped(run: Path) -> None:
    tensors = ToyLoop(weight=1.0, updates=2).optimizer_tensors()
    replace_tensors(run, "optimizer.safetensors", tensors)


@edited("LG302", "resumed", times=3, companions="LG303 LG306 LG505")
def totals_that_start_from_zero_after_the_resume(events: Events) -> None:
    """What was superseded, redone and read is then counted from another beginning, too."""
    start = of_kind(events, "session_start", session=2)[0]
    lost = {name: start[name] for name in ("microbatches", "tokens_seen", "loss_tokens")}
    for event in later(events, start):
        for at in (event, event.get("at", {})):
            for name, amount in lost.items():
                if name in at:
                    at[name] -= amount


@edited("LG203", "resumed", times=2)
def tokens_of_one_rank_of_two(events: Events) -> None:
    """In the superseded end of the first session, so that nothing else builds on them."""
    trains = of_kind(events, "train", session=1)[-2:]
    for train in trains:
        train["window"]["tokens"] //= 2
        train["window"]["loss_tokens"] //= 2
        for event in later(events, train):
            event["tokens_seen"] -= 8
            event["loss_tokens"] -= 8
    of_kind(events, "session_start", session=2)[0]["superseded"]["tokens"] -= 16


@edited("LG203", "plain", companions="LG202 LG202 LG704")
def evaluation_tokens_that_count(events: Events) -> None:
    """No window holds them (LG202, at the checkpoint and after it), and no attempt explains them (LG704)."""
    val = of_kind(events, "val")[1]
    for event in later(events, val):
        event["tokens_seen"] += 16
        if event["event"] == "checkpoint":
            event["at"]["tokens_seen"] += 16


# Logs.


@case("LG103", "resumed", companions="LG102")
def superseded_points_were_dropped(run: Path) -> None:
    """As a tracker does that drops what lies below its greatest step; the chain then breaks there: LG102."""
    lines = lines_of(run)
    starts = [number for number, line in enumerate(lines) if line.startswith(b'{"event":"session_start"')]
    write_lines(run, lines[: starts[1] - 2] + lines[starts[1] :])


@case("LG103", "plain", companions="LG102 LG107")
def points_that_were_kept_twice(run: Path) -> None:
    """The chain breaks (LG102), and the session's clock goes back (LG107)."""
    lines = lines_of(run)
    write_lines(run, [*lines[:4], *lines[2:]])


@case(
    "LG103",
    "resumed",
    times=3,
    companions="LG102 LG102 LG105 LG105 LG106 LG301 LG304:missing LG701:missing",
)
def lines_overwritten_in_place(run: Path) -> None:
    """The second session's lines stand where the superseded ones stood; of those the last are left behind it.

    So much is lost that nearly all that pins, follows or ends is gone with it.
    """
    lines = lines_of(run)
    second = next(number for number, line in enumerate(lines) if b'"session":2' in line)
    rest = lines[second:]
    write_lines(run, [*lines[: second - 4], *rest[:2], *lines[second - 2 : second]])


@case("LG104", "plain", severity="missing", companions="LG105 LG105 LG105 LG108")
def the_old_log_was_deleted(run: Path) -> None:
    """run.json and two checkpoints pin it (LG105), and run.json names its sessions (LG108)."""
    (run / LOG).unlink()


@case("LG101", "plain", companions="LG102 LG103 LG105")
def two_lines_in_one(run: Path) -> None:
    """A writer that does not look for a torn tail glues the next line to it: one is lost, and with it a pin."""
    lines = lines_of(run)
    lines[5] = lines[5][:40] + lines[6]
    del lines[6]
    write_lines(run, lines)


@case("LG102", "plain", times=2, companions="LG101")
def a_flipped_bit_early_and_another_late(run: Path) -> None:
    """Reading goes on behind the first, which no longer spells an event (LG101)."""
    log = run / LOG
    early, late = b'"seq":3,', b"a note before the end"
    data = log.read_bytes()
    at = data.index(early) + 2
    data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    at = data.rindex(late) + 2
    log.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


# Checkpoints.


@case("LG406", "interrupted")
def a_folder_without_a_manifest(run: Path) -> None:
    shutil.copytree(run / FIRST_CHECKPOINT, run / "checkpoints" / "step-00000004-s01")
    (run / "checkpoints" / "step-00000004-s01" / "manifest.json").unlink()


@edited("LG301", "sparse")
def automatically_from_an_older_checkpoint(events: Events) -> None:
    """9 is greater than 10 for a program that sorts names: the last session was told to take the latest one."""
    of_kind(events, "session_start", session=3)[0]["start"] = "auto"


# Status.


@edited("LG307", "closing", severity="warning")
def a_session_at_the_target_that_calls_itself_completed(events: Events) -> None:
    of_kind(events, "session_end")[-1]["status"] = "completed"


@edited("LG207", "plain")
def a_loss_that_vanishes_where_it_is_not_a_number(events: Events) -> None:
    of_kind(events, "train")[1]["loss"] = None


@edited("LG207", "plain", times=2)
def a_mean_that_hides_a_norm_that_is_not_a_number(events: Events) -> None:
    train = of_kind(events, "train")[1]
    train["grad_norm"] = train["grad_norm_max"] = "NaN"
