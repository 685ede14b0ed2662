"""Reads back what a run recorded, to compare two runs update by update."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ledger.checkpoints import find_checkpoints
from ledger.records.documents import Evaluation
from ledger.records.events import Event, SessionEnd, SessionStart, Train, Validation
from ledger.records.fields import Measurement
from ledger.storage.documents import read_document
from ledger.storage.log_reader import read_log

MEASURED = (
    "loss",
    "loss_last",
    "grad_norm",
    "grad_norm_max",
    "clipped",
    "lr",
    "cursor",
    "data_chain",
    "state",
)


def events(run: Path) -> list[Event]:
    """Return every event of the log."""
    found: list[Event] = []
    for line in read_log(run / "metrics.jsonl"):
        assert line.problem is None, line.problem
        assert isinstance(line.event, Event)
        found.append(line.event)
    return found


def updates(run: Path) -> dict[int, dict[str, Any]]:
    """Return what was measured at each update, by step; work that was redone must have given the same again."""
    found: dict[int, dict[str, Any]] = {}
    for event in events(run):
        if isinstance(event, Train) and event.window.updates:
            measured = {name: getattr(event, name) for name in MEASURED} | {"counters": event.counters}
            assert found.setdefault(event.step, measured) == measured
    return found


def batches(run: Path) -> dict[int, str]:
    """Return the digest of each microbatch by its number; what was read again must have been the same."""
    found: dict[int, str] = {}
    for event in events(run):
        if isinstance(event, Train):
            for number, digest in enumerate(event.batches, start=event.microbatches - len(event.batches)):
                assert found.setdefault(number, digest) == digest
    return found


def evaluations(run: Path) -> list[tuple[int, Measurement, bool]]:
    """Return step, loss and extent of each measurement on held-out text, once each."""
    found = {
        (event.step, event.loss, event.complete) for event in events(run) if isinstance(event, Validation)
    }
    return sorted(found, key=str)


def final_tensors(run: Path) -> dict[str, dict[str, str]]:
    """Return file → tensor → digest of the checkpoint furthest along."""
    last = max(find_checkpoints(run), key=lambda found: found.manifest.counters.microbatches)
    return {
        name: {tensor: found.sha256 for tensor, found in entry.tensors.items()}
        for name, entry in last.manifest.files.items()
        if entry.tensors is not None
    }


def final_evaluation(run: Path) -> Evaluation:
    """Return the evaluation of the final checkpoint; a kill between its file and its event leaves two that agree."""
    last = max(find_checkpoints(run), key=lambda found: found.manifest.counters.microbatches)
    kept = [read_document(path, Evaluation) for path in sorted((run / "evaluations").glob("*.json"))]
    found = [entry for entry in kept if entry.manifest_sha256 == last.manifest_sha256]
    assert len({entry.loss for entry in found}) == 1
    return found[-1]


def sessions(run: Path) -> list[tuple[str, str | None]]:
    """Return how each session started and how it ended, None where it did not."""
    found: list[tuple[str, str | None]] = []
    for event in events(run):
        if isinstance(event, SessionStart):
            found.append((event.start, None))
        if isinstance(event, SessionEnd):
            found[-1] = (found[-1][0], event.status)
    return found


def assert_same_training(control: Path, resumed: Path) -> None:
    """Insist that two runs are bit for bit the same training, whatever sessions they were done in."""
    assert batches(resumed) == batches(control)
    assert updates(resumed) == updates(control)
    assert evaluations(resumed) == evaluations(control)
    assert final_tensors(resumed) == final_tensors(control)
    assert msgspec.to_builtins(events(resumed)[-1].counters) == msgspec.to_builtins(
        events(control)[-1].counters
    )
    assert final_evaluation(resumed).loss == final_evaluation(control).loss
