"""LG402, LG405, LG407: what the tensor files of a checkpoint hold, without any training library."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from ledger.errors import LedgerError, StorageError
from ledger.records.documents import CheckpointFile, CheckpointManifest
from ledger.records.fields import Json
from ledger.storage.digests import hash_file
from ledger.storage.safetensors import TensorScan, read_header, scan_tensors
from ledger.storage.strict_json import parse_json

__all__ = ["digest_problems", "moment_problems"]

MARKS: Final = "ledger"
"""The key of the metadata under which a tensor file carries step, session and seq."""

Problem = tuple[str, str, str]
"""Rule, file, what is wrong."""


def digest_problems(
    folder: Path, files: Mapping[str, CheckpointFile], *, progress: Callable[[int], object] | None = None
) -> Iterator[Problem]:
    """Read whole files and yield where their bytes, their tensors or the values are not what they should be.

    Every file is hashed while its tensors are scanned, the largest first, on all cores.

    Raises:
        StorageError: the system refused to read.
    """
    with ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="ledger-tensors") as pool:
        jobs = {}
        for name, entry in sorted(files.items(), key=lambda item: -item[1].bytes):
            hashed = pool.submit(hash_file, folder / name, progress=progress)
            jobs[name] = (hashed, None if entry.tensors is None else pool.submit(scan_tensors, folder / name))
        for name in sorted(jobs):
            hashed, scanned = jobs[name]
            try:
                digest, scan = hashed.result().sha256, None if scanned is None else scanned.result()
            except StorageError:
                pool.shutdown(cancel_futures=True)
                raise
            except LedgerError as error:
                yield "LG402", name, str(error)
                continue
            yield from _content_problems(name, files[name], digest, scan)


def _content_problems(
    name: str, entry: CheckpointFile, digest: str, scan: TensorScan | None
) -> Iterator[Problem]:
    if digest != entry.sha256:
        yield "LG402", name, f"has SHA-256 {digest}, the manifest says {entry.sha256}"
    if scan is None or entry.tensors is None:
        return
    for tensor in sorted(scan.entries.keys() | entry.tensors.keys()):
        if scan.entries.get(tensor) != entry.tensors.get(tensor):
            yield "LG402", name, f"tensor {tensor} is not the one that the manifest describes"
    for tensor in scan.nonfinite:
        yield "LG405", name, f"tensor {tensor} holds numbers that are not finite"


def moment_problems(folder: Path, manifest: CheckpointManifest) -> Iterator[Problem]:
    """Yield which tensor files say that they are of another moment; one that does not say is not compared."""
    first: tuple[str, Json] | None = None
    for name, entry in sorted(manifest.files.items()):
        if entry.tensors is None:
            continue
        try:
            text = read_header(folder / name).metadata.get(MARKS)
            marks = None if text is None else parse_json(text.encode(), path=folder / name)
        except StorageError:
            raise
        except LedgerError as error:
            yield "LG402", name, str(error)
            continue
        if marks is None:
            continue
        first = first or (name, marks)
        if (marks.get("step"), marks.get("session")) != (manifest.counters.step, manifest.session):
            of = f"step {manifest.counters.step}, session {manifest.session}"
            yield "LG407", name, f"is of {marks}, but the manifest is of {of}"
        elif marks != first[1]:
            yield "LG407", name, f"is of {marks}, but {first[0]} of {first[1]}: two moments in one checkpoint"
