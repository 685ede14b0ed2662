"""Edits the records of a run and makes everything else agree again, so that a case breaks what it means to break.

After an edit the log is chained anew, and whatever pins it (manifests, the events that name them, evaluations,
run.json) is written to match. It shares the encoders with the ledger but none of its rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ledger.history import History
from ledger.records.documents import CheckpointFile, CheckpointManifest, Evaluation, TrainerState
from ledger.records.events import EVENT_KINDS, AnyEvent, encode_event
from ledger.records.layout import LOG, MANIFEST, RUN, TRAINER_STATE
from ledger.storage.canonical import digest_of, sha256_hex
from ledger.storage.chain import chain_line, first_chain
from ledger.storage.documents import document_bytes

Events = list[dict[str, Any]]
Edit = Callable[[Events], None]


def read_events(run_dir: Path) -> Events:
    """Return the events as plain mappings, without their chain."""
    lines = (run_dir / LOG).read_bytes().splitlines()
    events = [json.loads(line) for line in lines]
    for event in events:
        del event["chain"]
    return events


def of_kind(events: Events, kind: str, *, session: int | None = None) -> Events:
    """Return the events of one kind, of one session if asked."""
    return [event for event in events if event["event"] == kind and session in (None, event["session"])]


def drop(events: Events, event: dict[str, Any]) -> None:
    """Remove an event and number the others anew."""
    events.remove(event)
    renumber(events)


def renumber(events: Events) -> None:
    """Make `seq` dense again, and the positions that checkpoints name with it."""
    moved = {event["seq"]: seq for seq, event in enumerate(events)}
    for seq, event in enumerate(events):
        event["seq"] = seq
        if event["event"] == "checkpoint":
            at = event["at"]
            at["seq"] = moved.get(at["seq"], at["seq"])


def edit(run_dir: Path, change: Edit, *, trainer: Callable[[dict[str, Any]], None] | None = None) -> None:
    """Change the events and write the run anew; `trainer` also changes what trainer.json says."""
    events = read_events(run_dir)
    live = [(event, digest_of(event["cursor"])) for event in events if "cursor" in event and event["state"]]
    change(events)
    for event, before in live:  # a digest that was the cursor's stays so
        if event["state"] and event["state"]["cursor"] == before:
            event["state"]["cursor"] = digest_of(event["cursor"])
    _Rebuild(run_dir, trainer=trainer).write(events)


def change_nothing(events: Events) -> None:
    """Leave the events as they are."""
    del events[len(events) :]


def structure(event: dict[str, Any]) -> AnyEvent:
    """Return an event as the struct that the encoder takes."""
    body = {key: value for key, value in event.items() if key != "event"}
    return msgspec.convert(body | {"event": event["event"]}, EVENT_KINDS[event["event"]])  # type: ignore[return-value]


class _Rebuild:
    def __init__(self, run_dir: Path, *, trainer: Callable[[dict[str, Any]], None] | None) -> None:
        self._run_dir = run_dir
        self._trainer = trainer
        self._manifests: dict[str, str] = {}
        """Digest of a manifest before and after."""
        self._chains: dict[int, str] = {}
        self._standing: list[dict[str, Any]] = []
        self._starts: dict[int, dict[str, Any]] = {}

    def write(self, events: Events) -> None:
        run_id = next((event["run_id"] for event in events if event["event"] == "session_start"), "none")
        chain, history, lines = first_chain(run_id), History(), []
        for event in events:
            self._prepare(event)
            struct = structure(event)
            line, chain = chain_line(chain, encode_event(struct))
            lines.append(line)
            self._chains[event["seq"]] = chain
            history.add(struct, chain=chain)
        (self._run_dir / LOG).write_bytes(b"".join(lines))
        document = history.run_document()
        if document is not None:
            (self._run_dir / RUN).write_bytes(document_bytes(document))

    def _prepare(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "session_start":
            self._starts[event["session"]] = event
            if event["parent"]:
                old = event["parent"]["manifest_sha256"]
                event["parent"]["manifest_sha256"] = self._manifests.get(old, old)
        if kind in ("session_start", "train"):
            self._standing.append(event)
        if kind == "checkpoint":
            self._rewrite_checkpoint(event)
        if kind == "pruned":
            old = event["manifest_sha256"]
            event["manifest_sha256"] = self._manifests.get(old, old)
        if kind == "val" and event["evaluation"]:
            self._rewrite_evaluation(event)

    def _rewrite_checkpoint(self, event: dict[str, Any]) -> None:
        folder = self._run_dir / event["path"]
        if not (folder / MANIFEST).exists():
            return
        at = event["at"]
        standing = [known for known in self._standing if known["seq"] <= at["seq"]][-1]
        event["state"]["cursor"] = digest_of(standing["cursor"])
        counters = {name: value for name, value in at.items() if name != "seq"}
        shared = {
            "session": event["session"],
            "counters": counters,
            "cursor": standing["cursor"],
            "data_chain": standing["data_chain"],
        }
        trainer = json.loads((folder / TRAINER_STATE).read_bytes()) | shared | {"seq": at["seq"]}
        if self._trainer is not None:
            self._trainer(trainer)
        trainer_bytes = document_bytes(TrainerState.model_validate(_structured(trainer)))
        (folder / TRAINER_STATE).write_bytes(trainer_bytes)
        manifest = json.loads((folder / MANIFEST).read_bytes()) | shared
        start = self._starts[event["session"]]
        manifest |= {name: start[name] for name in ("recipe_sha256", "identity_sha256", "data")}
        manifest |= {"state": event["state"], "log": {"seq": at["seq"], "chain": self._chains[at["seq"]]}}
        event["bytes"] += len(trainer_bytes) - manifest["files"][TRAINER_STATE]["bytes"]
        manifest["files"][TRAINER_STATE] = {
            "bytes": len(trainer_bytes),
            "sha256": sha256_hex(trainer_bytes),
            "tensors": None,
        }
        data = document_bytes(CheckpointManifest.model_validate(_structured(manifest)))
        (folder / MANIFEST).write_bytes(data)
        self._manifests[event["manifest_sha256"]] = event["manifest_sha256"] = sha256_hex(data)

    def _rewrite_evaluation(self, event: dict[str, Any]) -> None:
        path = self._run_dir / event["evaluation"]["path"]
        if not path.exists():
            return
        document = json.loads(path.read_bytes())
        old = document["manifest_sha256"]
        document["manifest_sha256"] = self._manifests.get(old, old)
        document["environment_sha256"] = self._starts[event["session"]]["environment_sha256"]
        data = document_bytes(Evaluation.model_validate(document))
        path.write_bytes(data)
        event["evaluation"]["sha256"] = sha256_hex(data)


def _structured(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document with the files of a manifest as the model wants them."""
    files = document.get("files")
    if files is None:
        return document
    return document | {"files": {name: CheckpointFile.model_validate(entry) for name, entry in files.items()}}


def rewrite_tail(run_dir: Path, change: Callable[[list[bytes]], list[bytes]], *, keep: int) -> None:
    """Replace the bodies (`{…}`) of all lines but the first `keep` and chain them; nothing may pin them."""
    lines = (run_dir / LOG).read_bytes().splitlines(keepends=True)
    kept, rest = lines[:keep], lines[keep:]
    chain = kept[-1][-67:-3].decode()
    written = []
    for body in change([line[:-77] + b"}" for line in rest]):
        line, chain = chain_line(chain, body)
        written.append(line)
    (run_dir / LOG).write_bytes(b"".join(kept + written))
