"""Retention: which checkpoints are more than enough, and how they go.

The log says that a checkpoint goes before it goes, and it goes by its name first: a crash leaves it whole, or under a
temporary name that nothing reads. What the log already says and a crash kept from happening, the next start does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ledger.errors import UsageError
from ledger.history import History, KnownCheckpoint
from ledger.recorder.active import ActiveSession
from ledger.recorder.opening import OpenedRun
from ledger.records.events import Pruned
from ledger.storage.atomic import temporary_path
from ledger.storage.filesystem import FileSystem
from ledger.storage.trees import remove_tree

__all__ = ["finish_pruning", "prune", "surplus"]

ON_THE_WAY: Final = ("interval", "signal")
"""Kinds that retention may remove; a milestone and a final stay for ever."""


def surplus(
    history: History, present: Iterable[KnownCheckpoint], *, keep_last: int
) -> list[tuple[KnownCheckpoint, str]]:
    """Return the checkpoints that retention removes, oldest first, each with the reason.

    Of those taken on the way (by interval or signal) the newest `keep_last` of the current branch stay. So do the
    branch's latest and the best by validation loss, the parent of the session under way, and a parent that no event
    but only its own folder vouches for. What no branch leads to any more goes.
    """
    found = [known for known in present if known.path not in history.pruned]
    on_the_way = sorted(
        (known for known in found if known.kind in ON_THE_WAY),
        key=lambda known: (known.counters.microbatches, known.session),
    )
    on_branch = [known for known in on_the_way if history.is_on_branch(known)]
    kept = {known.path for known in on_branch[-keep_last:]} | _protected(history, found)
    return [
        (known, f"not among the newest {keep_last}" if known in on_branch else "superseded")
        for known in on_the_way
        if known.path not in kept
    ]


def _protected(history: History, found: list[KnownCheckpoint]) -> set[str]:
    latest, best = history.latest(found), history.best(must_be_kept=True)
    kept = {latest.path} if latest is not None else set()
    if best is not None and best.checkpoint is not None:
        kept.add(best.checkpoint.path)
    parents = [session.start.parent for session in history.sessions]
    vouched_for = {known.path for known in history.checkpoints()}
    kept |= {parent.checkpoint for parent in parents if parent and parent.checkpoint not in vouched_for}
    return kept | {parent.checkpoint for parent in parents[-1:] if parent}


def prune(opened: OpenedRun, session: ActiveSession, *, keep_last: int, fs: FileSystem) -> list[str]:
    """Remove what is more than `keep_last` asks for and return the paths, oldest first.

    Raises:
        UsageError: less than one checkpoint is to stay, or the session has ended.
        UnsafeError: the lock that keeps other writers away is gone.
        StorageError: the system refused.
    """
    if keep_last < 1:
        raise UsageError(f"{keep_last} checkpoints are to stay", expected="at least 1")
    session.require_open()
    complete = {found.path: found for found in opened.checkpoints}
    removed = surplus(opened.history, [found.known for found in complete.values()], keep_last=keep_last)
    for known, reason in removed:
        session.writer.require_sole_writer()
        session.writer.write(
            Pruned, path=known.path, manifest_sha256=known.manifest_sha256, reason=f"retention: {reason}"
        )
        _remove(session.writer.locate_folder() / known.path, fs=fs)
        opened.checkpoints.remove(complete[known.path])
    return [known.path for known, _ in removed]


def finish_pruning(opened: OpenedRun, *, fs: FileSystem) -> None:
    """Remove the checkpoints that the log calls pruned and that a crash left in their place.

    Raises:
        StorageError: the system refused.
    """
    for found in list(opened.checkpoints):
        event = opened.history.pruned.get(found.path)
        if event is not None and event.manifest_sha256 == found.manifest_sha256:
            _remove(found.folder, fs=fs)
            opened.checkpoints.remove(found)


def _remove(folder: Path, *, fs: FileSystem) -> None:
    """Take a checkpoint's name away, durably, and then its files."""
    hidden = temporary_path(folder)
    fs.rename(folder, hidden)
    fs.sync_directory(folder.parent)
    remove_tree(hidden, fs=fs)
