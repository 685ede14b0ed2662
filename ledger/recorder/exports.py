"""Exports: weights on their own, durable and recorded, from which nothing can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.errors import UsageError
from ledger.recorder.active import ActiveSession
from ledger.recorder.commit import discard_checkpoint_folder
from ledger.records.events import Export
from ledger.records.layout import EXPORTS, checkpoint_name
from ledger.records.parts import StoredFile
from ledger.storage.atomic import publish_folder, sync_file, temporary_path
from ledger.storage.digests import hash_file
from ledger.storage.files import ensure_folder
from ledger.storage.filesystem import FileSystem

__all__ = ["export_weights"]


@contextmanager
def export_weights(session: ActiveSession, *, fs: FileSystem) -> Iterator[Path]:
    """Yield a folder for the loop's files; sync them, give it its name and write the event when the block ends.

    Raises:
        UsageError: inside an accumulation window, or nothing was written.
        RefusedError: this session exported this step before.
        StorageError: the system refused; no export of that name appeared.
    """
    session.require_open()
    if session.account.outstanding:
        raise UsageError(
            f"an export was asked for after {session.account.outstanding} microbatches of a window",
            expected="one between accumulation windows, after `updated` or `skipped`",
        )
    with session.phases.within("checkpoint"):
        root = session.writer.locate_folder() / EXPORTS
        ensure_folder(root, fs=fs)
        final = root / checkpoint_name(step=session.account.step, session=session.number)
        folder = temporary_path(final)
        fs.mkdir(folder)
        try:
            yield folder
            files = _stored(folder, fs=fs)
            session.writer.require_sole_writer()
            publish_folder(folder, final, fs=fs)
        except BaseException:
            discard_checkpoint_folder(folder, fs=fs)
            raise
    seconds = session.take("checkpoint")
    with session.phases.within("report"):
        session.writer.write(
            Export,
            path=f"{EXPORTS}/{final.name}",
            files=files,
            model=session.capture().model,
            seconds=seconds,
        )


def _stored(folder: Path, *, fs: FileSystem) -> dict[str, StoredFile]:
    names = fs.list_directory(folder)
    if not names:
        raise UsageError("nothing was exported", path=folder, expected="a file of weights at least")
    stored = {}
    for name in sorted(names):
        sync_file(folder / name, fs=fs)
        size, sha256 = hash_file(folder / name, fs=fs)
        stored[name] = StoredFile(bytes=size, sha256=sha256)
    return stored
