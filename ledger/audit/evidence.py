"""Single events read again by their place: compact columns tell that two differ, the lines tell how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ledger.audit.track import Track
from ledger.errors import LedgerError, StorageError
from ledger.records.events import Train, decode_event
from ledger.records.layout import LOG
from ledger.storage.chain import split_line
from ledger.storage.files import opened_regular_file
from ledger.storage.filesystem import OS

__all__ = ["MEASURES", "differing_measures", "train_at"]

MEASURES: Final = ("loss", "loss_last", "grad_norm", "grad_norm_max", "lr", "loss_scale")
"""What redone work must repeat, in the order that locates a cause."""


def train_at(run_dir: Path, track: Track, row: int) -> Train | None:
    """Return the train event of one row, None if the log no longer holds it there.

    Raises:
        StorageError: the system refused to read.
    """
    path = run_dir / LOG
    try:
        with opened_regular_file(path) as descriptor:
            line = OS.pread(descriptor, track.rows.length[row], track.rows.offset[row], path=path)
        split = split_line(line.rstrip(b"\n"))
        event = None if split is None else decode_event(split[0])
    except StorageError:
        raise
    except (LedgerError, ValueError):
        return None
    return event if isinstance(event, Train) else None


def differing_measures(first: Train, second: Train) -> Iterator[tuple[str, object, object]]:
    """Yield (name, value, other value) of each measure on which two train events differ."""
    for name in MEASURES:
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            yield name, one, other
