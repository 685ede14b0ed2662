"""What a session starts from: its parent, resolved against events and folders."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.audit.files import CheckpointFolder
from ledger.audit.stream import Stream
from ledger.records.documents import CheckpointManifest
from ledger.records.events import SessionStart
from ledger.records.layout import MANIFEST
from ledger.records.parts import Counters, Cursor, Parent, StateDigests

__all__ = ["ParentCheckpoint", "resolve_parent", "starts_from_beginning"]


@dataclass(frozen=True, kw_only=True)
class ParentCheckpoint:
    """What is known of the checkpoint that a session starts from."""

    run: str
    session: int
    counters: Counters
    seq: int
    state: StateDigests
    cursor: Cursor | None
    data_chain: str | None


def starts_from_beginning(stream: Stream, start: SessionStart) -> bool:
    """Tell whether a session starts from the run's beginning: without parent, or from another run's checkpoint."""
    return start.parent is None or start.parent.run != (stream.history.run_id or start.run_id)


def resolve_parent(stream: Stream, start: SessionStart) -> ParentCheckpoint | None:
    """Return the parent checkpoint of a session, None where neither an event nor a folder vouches for it.

    An event comes first: it is on the chain. A complete folder without one is vouched for by its pin on this log.
    """
    parent = start.parent
    if parent is None:
        return None
    if starts_from_beginning(stream, start):
        return _of_other_run(stream, parent)
    captured = stream.captured.get((parent.checkpoint, parent.manifest_sha256))
    folder = stream.files.complete_checkpoints.get(parent.checkpoint)
    manifest = _manifest_with(folder, parent.manifest_sha256)
    if captured is None:
        is_pinned = f"{parent.checkpoint}/{MANIFEST}" in stream.pinned
        return _from_manifest(manifest) if manifest is not None and is_pinned else None
    if manifest is not None:
        return _from_manifest(manifest)
    standing = captured.standing
    return ParentCheckpoint(
        run=parent.run,
        session=captured.event.session,
        counters=captured.event.at.counters,
        seq=captured.event.at.seq,
        state=captured.event.state,
        cursor=None if standing is None else standing.cursor,
        data_chain=None if standing is None else standing.data_chain,
    )


def _of_other_run(stream: Stream, parent: Parent) -> ParentCheckpoint | None:
    loaded = stream.files.parent_manifest
    if loaded.document is None or loaded.sha256 != parent.manifest_sha256:
        return None
    return _from_manifest(loaded.document)


def _manifest_with(folder: CheckpointFolder | None, sha256: str) -> CheckpointManifest | None:
    if folder is None or folder.manifest.sha256 != sha256:
        return None
    return folder.manifest.document


def _from_manifest(manifest: CheckpointManifest) -> ParentCheckpoint:
    return ParentCheckpoint(
        run=manifest.run_id,
        session=manifest.session,
        counters=manifest.counters,
        seq=manifest.log.seq,
        state=manifest.state,
        cursor=manifest.cursor,
        data_chain=manifest.data_chain,
    )
