"""What reads writes nothing: every operation passes through the seam, so the list of them is the proof."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.records.documents import Evaluation
from ledger.storage.digests import hash_file
from ledger.storage.documents import read_document, write_document
from ledger.storage.filesystem import FileSystem
from ledger.storage.lock import RunLock, lock_state
from ledger.storage.log import list_quarantined, read_log
from tests.ledger.storage.building import events, write_log
from tests.ledger.storage.test_documents import EVALUATION

READING = {"open", "close", "read", "pread", "fstat", "stat", "list", "lock"}
WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class ReadingOnly(FileSystem):
    """Refuses every operation that could write."""

    def perform(
        self, operation: str, path: Any, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        assert operation in READING
        assert operation != "open" or not arguments[1] & WRITING_FLAGS
        return super().perform(operation, path, function, *arguments, **options)


READERS: dict[str, Callable[[Path, FileSystem], object]] = {
    "log": lambda folder, fs: list(read_log(folder / "metrics.jsonl", fs=fs)),
    "document": lambda folder, fs: read_document(folder / "evaluation.json", Evaluation, fs=fs),
    "digest": lambda folder, fs: hash_file(folder / "metrics.jsonl", fs=fs),
    "lock": lambda folder, fs: lock_state(folder, fs=fs),
    "quarantine": lambda folder, fs: list_quarantined(folder, fs=fs),
}


@pytest.mark.parametrize("name", READERS)
def test_reading_writes_nothing(tmp_path: Path, name: str):
    write_log(tmp_path / "metrics.jsonl", events(3))
    write_document(tmp_path / "evaluation.json", EVALUATION, replace=False)
    RunLock(tmp_path).close()
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()}
    assert READERS[name](tmp_path, ReadingOnly()) is not None
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()} == before
