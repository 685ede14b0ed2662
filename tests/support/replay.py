"""A second, deliberately naive account of a run: read with `json` alone, written from the records reference.

It adds up what each line moved and walks the parents back with dictionaries. It shares no code with the ledger, so
what both say is not said twice by one mistake.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

TOTALS = ("step", "attempts", "skipped", "microbatches", "tokens_seen", "loss_tokens")


class Replayed(NamedTuple):
    """What a log adds up to."""

    sessions: int
    branch: dict[str, int]
    spent: dict[str, int]
    superseded: list[dict[str, int]]
    """Of each session's start, counted by hand."""
    skips: dict[str, int]
    """Overflow events on the branch, by reason."""


def replay(run_dir: Path) -> Replayed:
    """Read a run's log and add it up."""
    events = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_bytes().split(b"\n")[:-1]]
    sessions: dict[int, list[dict[str, Any]]] = {}
    superseded = []
    for event in events:
        if event["event"] == "session_start" and sessions:
            superseded.append(_lost(run_dir, sessions, event))
        sessions.setdefault(event["session"], []).append(event)
    branch = _branch(run_dir, sessions, max(sessions))
    kept = [event for number in branch for event in branch[number]]
    skips: dict[str, int] = {}
    for event in kept:
        if event["event"] == "overflow":
            skips[event["reason"]] = skips.get(event["reason"], 0) + 1
    return Replayed(
        sessions=len(sessions),
        branch=_sum(branch.values()),
        spent=_sum(sessions.values()),
        superseded=superseded,
        skips=skips,
    )


def _branch(
    run_dir: Path, sessions: dict[int, list[dict[str, Any]]], last: int
) -> dict[int, list[dict[str, Any]]]:
    """Return the events of each session that lie on the branch which ends with session `last`."""
    kept = {last: list(sessions[last])}
    start = sessions[last][0]
    return kept | _ancestors(run_dir, sessions, start)


def _ancestors(
    run_dir: Path, sessions: dict[int, list[dict[str, Any]]], start: dict[str, Any]
) -> dict[int, list[dict[str, Any]]]:
    kept = {}
    run_id = sessions[1][0]["run_id"]
    parent = start["parent"]
    while parent is not None and parent["run"] == run_id:
        number, limit = parent["session"], _captured(run_dir, sessions, parent)
        kept[number] = [event for event in sessions[number] if _mark(event) <= limit]
        parent = sessions[number][0]["parent"]
    return kept


def _captured(run_dir: Path, sessions: dict[int, list[dict[str, Any]]], parent: dict[str, Any]) -> int:
    """Return the microbatches that a checkpoint captured: from its event, else from its manifest."""
    for event in sessions[parent["session"]]:
        if event["event"] == "checkpoint" and event["path"] == parent["checkpoint"]:
            return int(event["at"]["microbatches"])
    manifest = json.loads((run_dir / parent["checkpoint"] / "manifest.json").read_bytes())
    return int(manifest["counters"]["microbatches"])


def _mark(event: dict[str, Any]) -> int:
    return int(event["at"]["microbatches"] if event["event"] == "checkpoint" else event["microbatches"])


def _lost(run_dir: Path, sessions: dict[int, list[dict[str, Any]]], start: dict[str, Any]) -> dict[str, int]:
    """Return what was on the branch before a session started and no longer is."""
    before = _branch(run_dir, sessions, max(sessions))
    after = _ancestors(run_dir, {**sessions, start["session"]: [start]}, start)
    lost = dict.fromkeys(TOTALS, 0)
    lines = 0
    for number, events in before.items():
        kept = [event for event in events if event in after.get(number, [])]
        was, remains = _sum([events]), _sum([kept])
        lost = {name: lost[name] + was[name] - remains[name] for name in TOTALS}
        lines += len(events) - len(kept)
    return {
        "updates": lost["step"],
        "attempts": lost["attempts"],
        "microbatches": lost["microbatches"],
        "tokens": lost["tokens_seen"],
        "events": lines,
    }


def _sum(sessions: Any) -> dict[str, int]:
    """Add up what each line moved the totals by, session by session."""
    totals = dict.fromkeys(TOTALS, 0)
    for events in sessions:
        for before, after in pairwise(events):
            for name in TOTALS:
                totals[name] += after[name] - before[name]
    return totals
