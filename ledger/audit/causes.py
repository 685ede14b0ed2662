"""Where to look first: what the first point at which two accounts of the same work differ says of its cause."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from ledger.audit.track import Track, prefix
from ledger.records.events import Train
from ledger.records.parts import StateDigests

__all__ = [
    "STATE_ORDER",
    "cause_of_batches",
    "cause_of_count",
    "cause_of_measure",
    "cause_of_rate",
    "cause_of_restored",
    "cause_of_start",
    "differing_parts",
]

STATE_ORDER: Final = ("rng", "model", "optimizer", "schedule", "cursor", "scaler", "guards")
"""Parts of the live state in the order that locates a cause."""

_STARTS: Final[Mapping[str, str]] = {
    "rng": "look at the seed, or at what draws random numbers before the first batch (initialisation, a loader)",
    "model": "look at the initial weights: the seed, the initialisation or the parent checkpoint is another",
    "optimizer": "look at how the optimizer is made or restored",
    "schedule": "look at the schedule's position and horizon",
    "cursor": "look at where the reader starts",
    "data_chain": "look at where the reader starts",
    "scaler": "look at the gradient scaler's first scale",
    "guards": "look at the guards' windows",
    "counters": "the two start at other totals: one of them continues another run",
}
_MEASURES: Final[Mapping[str, str]] = {
    "grad_norm": "the forward pass agrees: look at the backward pass (an operation that adds in no fixed order), "
    "at unscaling or at the norm itself",
    "grad_norm_max": "the last update agrees, one before it in the window does not: look at its backward pass",
    "lr": "look at the schedule: its position, its horizon or the base rate",
    "loss_scale": "look at the gradient scaler: its scale or growth tracker was not restored",
}


_RESTORED: Final[Mapping[str, str]] = {
    "model": "other weights were loaded, or something changed them before the first batch (a cast, a tied tensor)",
    "optimizer": "moments, step counts or master weights were not restored, or restored in another number format",
    "schedule": "the schedule's position was not restored",
    "cursor": "the reader's position was not restored",
    "rng": "generators were not restored, or something drew from them before the first batch (a loader, an evaluation)",
    "scaler": "the gradient scaler's scale or growth tracker was not restored",
    "guards": "the guards' windows were not restored",
}


def cause_of_start(part: str) -> str:
    """Return where to look when a part differs before the first microbatch."""
    return _STARTS.get(part, "look at what is restored")


def cause_of_restored(part: str) -> str:
    """Return what usually went wrong when a part is not the parent's after restoring."""
    return _RESTORED.get(part, "it was not restored")


def cause_of_count(found: int, expected: int) -> str:
    """Return what a count that is a whole multiple or part of the expected one points at; empty where it is neither."""
    if found <= 0 or expected <= 0 or found == expected:
        return ""
    if found % expected == 0:
        return f": exactly {found // expected} times as many, as if each rank or microbatch were counted so often"
    if expected % found == 0:
        return f": exactly 1/{expected // found} of it, as if one rank or microbatch stood for all"
    return ""


def cause_of_rate(rate: float, *, at: Callable[[int], float], train: Train, began_at: int) -> str:
    """Return at which other place of the schedule a rate would be right; empty where there is none.

    Args:
        rate: as it was logged.
        at: the schedule: a step to the rate.
        train: the event that states it.
        began_at: the step from which its session started.
    """
    places = {
        train.step
        - 1: "the one before: it was read before the schedule moved on, or the schedule counts from 0",
        train.step + 1: "the one after: it was read after the schedule moved on",
        train.step - began_at: "counted from the resume: the schedule was not restored",
        train.attempts: "the number of attempts: the schedule moves on at skipped ones, too",
    }
    expected = at(train.step)
    for step, meaning in places.items():
        if step >= 1 and at(step) != expected and math.isclose(rate, at(step), rel_tol=1e-9):
            return f"; it is the rate of step {step}, {meaning}"
    return ""


def differing_parts(first: StateDigests | None, second: StateDigests | None) -> list[str] | None:
    """Return the parts of the live state that differ, in the order that locates a cause; None without digests."""
    if first is None or second is None:
        return None
    return [part for part in STATE_ORDER if getattr(first, part) != getattr(second, part)]


def cause_of_measure(name: str, *, track: Track, step: int, same_data: bool = True) -> str:
    """Return where to look when a measure is the first thing that differs.

    Args:
        name: one of `evidence.MEASURES`.
        track: the session in which it differs, which took up from a checkpoint or began anew.
        step: after how many updates in all.
        same_data: whether the batches up to there agree.
    """
    if not same_data:
        return "other batches were read: see LG802 first"
    if name not in ("loss", "loss_last"):
        return _MEASURES.get(name, f"look at what decides {name}")
    updates = step - track.start.step
    if track.start.parent is None:
        begun = "in the first update" if updates <= 1 else f"in update {updates}; those before agree"
        return f"{begun}: look at initial weights, dropout generators, or an operation that does not repeat itself"
    if updates <= 1:
        return "in the first update after the resume: look at weights, buffers or dropout RNG that was not restored"
    return (
        f"in update {updates} after the resume, and those before agree: look at optimizer state or scaler that was not "
        "restored, at buffers, dropout RNG, or an operation that does not repeat itself"
    )


def cause_of_batches(event: Train, other: Train, *, of: Track) -> str:
    """Return which batch of an event is the first other one, and where to look; the other event is `of` a session.

    Both events end at the same number of microbatches, and their batches differ.
    """
    count = min(len(event.batches), len(other.batches))
    ours, theirs = event.batches[len(event.batches) - count :], other.batches[len(other.batches) - count :]
    place = next((index for index in range(count) if ours[index] != theirs[index]), None)
    if place is None:
        return "the batches of this window agree, so one before it was another, which both did not log at one place"
    number = event.microbatches - count + place + 1
    first = f"the first other one is microbatch {number}"
    found = _place_of(ours[place], of)
    if found is not None and found != number:
        many = "1 microbatch was" if abs(found - number) == 1 else f"{abs(found - number)} microbatches were"
        how = f"{many} {'skipped' if found > number else 'read again'}"
        return f"{first}, which was microbatch {found} there: {how}; look at how the cursor is restored"
    if event.cursor != other.cursor:
        return f"{first}; the cursors differ too: look at how the reader's position is saved and restored"
    return (
        f"{first}; the cursors agree, so other tokens were read at the same place: look at the shards "
        "(ledger verify), the shuffle's seed and the packing"
    )


def _place_of(batch: str, track: Track) -> int | None:
    """Return as which microbatch of the run a session read a batch; None where it did not, or more than once."""
    wanted = prefix(batch)
    if track.batches.count(wanted) != 1:
        return None
    return track.start.microbatches + track.batches.index(wanted) + 1
