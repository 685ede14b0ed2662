"""What writes into a run beside its recorder: the verdict that a reconcile was asked to keep."""

from __future__ import annotations

import os
from pathlib import Path

from ledger.errors import RefusedError
from ledger.records.documents import Verdict
from ledger.records.layout import SEAL
from ledger.storage.atomic import replace_file
from ledger.storage.documents import document_bytes

__all__ = ["VERDICT", "write_verdict"]

VERDICT = "verdict.json"
"""The last verdict that was written."""


def write_verdict(run_dir: str | os.PathLike[str], verdict: Verdict) -> Path:
    """Write a verdict into its run, in place of an older one; returns where it lies.

    Raises:
        RefusedError: the run is sealed: it was declared done, and nothing is added to it.
        StorageError: the system refused to write.
    """
    folder = Path(run_dir)
    if (folder / SEAL).exists():
        raise RefusedError(
            "the run is sealed",
            path=folder,
            expected="a run that is still open",
            advice="print the verdict instead",
        )
    replace_file(folder / VERDICT, document_bytes(verdict))
    return folder / VERDICT
