"""LG1: the form of the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.corpus.runs.base import OTHER, case, edited, later
from tests.ledger.audit.editing import Events, of_kind, read_events, rewrite_tail


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


def edit_run_document(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change run.json alone."""
    document = json.loads((run / "run.json").read_bytes())
    change(document)
    (run / "run.json").write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))


@case("LG108", "resumed")
def run_json_lists_a_session_twice(run: Path) -> None:
    edit_run_document(run, lambda document: document["sessions"].append(document["sessions"][0]))


@case("LG108", "resumed")
def run_json_lists_its_sessions_in_another_order(run: Path) -> None:
    edit_run_document(run, lambda document: document["sessions"].reverse())


@case("LG108", "resumed")
def run_json_lists_the_second_session_alone(run: Path) -> None:
    edit_run_document(run, lambda document: document["sessions"].pop(0))


@case("LG108", "resumed", times=2, companions="LG108:warning")
def run_json_is_behind_with_another_target(run: Path) -> None:
    edit_run_document(
        run, lambda document: (document["sessions"].pop(), document.update(target_step=99, planned_tokens=1))
    )


@case("LG108", "resumed")
def run_json_places_a_session_elsewhere(run: Path) -> None:
    """The line that it names is that of the log, so LG105 has nothing to say."""
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]

    def change(document: dict[str, Any]) -> None:
        document["sessions"][1]["log"] = {"seq": 3, "chain": log[3]["chain"]}

    edit_run_document(run, change)


@edited("LG108", "resumed")
def a_second_session_states_the_facts_again(events: Events) -> None:
    first, second = of_kind(events, "session_start")
    second["run"] = first["run"]


@edited("LG103", "resumed")
def a_session_of_another_run(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["run_id"] = "other"
