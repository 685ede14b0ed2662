"""What LG306 and LG8 say of a first point of difference: enough for a person to know where to look."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ledger.audit import reconcile
from ledger.audit.causes import STATE_ORDER, cause_of_count, cause_of_rate, cause_of_start
from ledger.records.events import Train, decode_event
from ledger.records.layout import LOG
from ledger.records.parts import StateDigests
from ledger.storage.chain import split_line
from tests.ledger.audit.editing import Edit, Events, edit, of_kind

OTHER = "ab" * 32


def second(events: Events, update: int) -> dict[str, Any]:
    """The train event of an update after the resume: 1, 2 or 3."""
    return of_kind(events, "train", session=2)[update - 1]


def measure(update: int, name: str, value: Any) -> Edit:
    def change(events: Events) -> None:
        second(events, update)[name] = value

    return change


def shift(by: int) -> Edit:
    """Let the second session read each batch so many places later than the first one did."""

    def change(events: Events) -> None:
        trains = of_kind(events, "train")
        read: dict[int, str] = {}
        for train in trains:
            begin = train["microbatches"] - len(train["batches"])
            read |= {begin + index: batch for index, batch in enumerate(train["batches"])}
        event = second(events, 1)
        begin = event["microbatches"] - len(event["batches"])
        event["batches"] = [read[begin + by + index] for index in range(len(event["batches"]))]
        event["data_chain"] = OTHER

    return change


def other_tokens(events: Events) -> None:
    event = second(events, 1)
    event["batches"][-1] = OTHER[:16]
    event["data_chain"] = OTHER


def both(events: Events) -> None:
    other_tokens(events)
    second(events, 1)["cursor"] = {"train": {"epoch": 0, "offset": 0}}


def state(update: int, **parts: str) -> Edit:
    def change(events: Events) -> None:
        for event in of_kind(events, "train", session=2)[update - 1 :]:
            event["state"] |= parts

    return change


def messages(run: Path, *rules: str, control: Path | None = None) -> str:
    verdict = reconcile(run, control=control)
    return " | ".join(found.message for found in verdict.findings if found.rule in rules)


REDONE = {
    "loss at once": (
        measure(1, "loss", 7.0),
        "at step 4 loss is 7.0, before .*first update after the resume: .*dropout",
    ),
    "loss later": (
        measure(2, "loss", 7.0),
        "in update 2 after the resume, and those before agree: .*optimizer state",
    ),
    "norm": (measure(1, "grad_norm", 7.0), "the forward pass agrees: look at the backward pass"),
    "rate": (measure(1, "lr", {"all": 7.0}), "look at the schedule"),
    "one skipped": (
        shift(1),
        "first other one is microbatch 7, which was microbatch 8 there: 1 microbatch was skipped",
    ),
    "two read again": (shift(-2), "which was microbatch 5 there: 2 microbatches were read again"),
    "other tokens": (
        other_tokens,
        "first other one is microbatch 8; the cursors agree, so other tokens .*the shards",
    ),
    "other place": (both, "the cursors differ too: look at how the reader's position"),
}


@pytest.mark.parametrize(("change", "message"), REDONE.values(), ids=REDONE.keys())
def test_redone_work_that_differs_says_where_to_look(
    change: Edit, message: str, copy_of: Callable[[str], Path]
):
    run = copy_of("resumed")
    edit(run, change)
    assert re.search(message, messages(run, "LG306"))


CONTROLLED = {
    "batches": (other_tokens, "LG802", "the batches differ at step 4: .*microbatch 8; the cursors agree"),
    "loss": (
        measure(3, "loss", 7.0),
        "LG803",
        r"loss differs at step 6 although batch digests agree \(7.0, the control's",
    ),
    "loss after": (measure(3, "loss", 7.0), "LG803", "in update 3 after the resume"),
    "optimizer": (state(2, optimizer=OTHER), "LG804", "^optimizer differs after step 5 although .*moments"),
    "model": (state(2, model=OTHER), "LG804", "^model differs after step 5 although .*the update itself"),
}


@pytest.mark.parametrize(("change", "rule", "message"), CONTROLLED.values(), ids=CONTROLLED.keys())
def test_a_difference_from_the_control_says_where_to_look(
    change: Edit, rule: str, message: str, copy_of: Callable[[str], Path], healthy_run: Callable[[str], Path]
):
    run = copy_of("resumed")
    edit(run, change)
    assert re.search(message, messages(run, rule, control=healthy_run("plain")))


def test_every_part_has_its_own_words():
    assert {*STATE_ORDER} == {*StateDigests.__struct_fields__}
    starts = [cause_of_start(part) for part in (*STATE_ORDER, "counters")]
    assert len({*starts}) == len(starts)


def the_scaler_is_new(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["state"]["scaler"] = OTHER


def the_generators_are_new(events: Events) -> None:
    of_kind(events, "session_start", session=2)[0]["state"]["rng"] = OTHER


OTHERS = {
    "rng": (
        "resumed",
        the_generators_are_new,
        "LG302",
        "expected the parent's .*: generators were not restored",
    ),
    "scaler": ("resumed", the_scaler_is_new, "LG302", "scale or growth tracker was not restored"),
}


@pytest.mark.parametrize(("name", "change", "rule", "message"), OTHERS.values(), ids=OTHERS.keys())
def test_other_findings_say_what_usually_went_wrong(
    name: str, change: Edit, rule: str, message: str, copy_of: Callable[[str], Path]
):
    run = copy_of(name)
    edit(run, change)
    assert re.search(message, messages(run, rule))


@pytest.mark.parametrize(
    ("found", "expected", "words"),
    [
        (32, 16, "exactly 2 times as many"),
        (4, 16, "exactly 1/4 of it"),
        (17, 16, ""),
        (0, 16, ""),
        (16, 16, ""),
    ],
)
def test_a_count_that_is_a_multiple_is_called_one(found: int, expected: int, words: str):
    assert words in cause_of_count(found, expected)
    assert bool(words) == bool(cause_of_count(found, expected))


@pytest.mark.parametrize(
    ("rate", "words"),
    [(9.0, "step 9, the one before"), (11.0, "step 11, the one after"), (4.0, "counted from the resume"),
     (13.0, "number of attempts"), (10.0, ""), (99.0, "")],
)  # fmt: skip
def test_a_rate_of_another_place_is_recognised(rate: float, words: str, healthy_run: Callable[[str], Path]):
    line = (healthy_run("plain") / LOG).read_bytes().splitlines()[2]
    event = decode_event(split_line(line)[0])  # type: ignore[index]
    assert isinstance(event, Train)
    event = msgspec.structs.replace(event, step=10, attempts=13)
    cause = cause_of_rate(rate, at=float, train=event, began_at=6)
    assert words in cause
    assert bool(words) == bool(cause)
    assert cause_of_rate(rate, at=lambda _: 10.0, train=event, began_at=6) == ""
