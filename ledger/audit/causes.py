"""Where to look first: what the first point at which two accounts of the same work differ says of its cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ledger.audit.track import Track, prefix
from ledger.records.events import Train
from ledger.records.parts import StateDigests

__all__ = ["STATE_ORDER", "cause_of_batches", "cause_of_measure", "cause_of_start", "differing_parts"]

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


def cause_of_start(part: str) -> str:
    """Return where to look when a part differs before the first microbatch."""
    return _STARTS.get(part, "look at what is restored")


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
