"""What stands at the target already: a dataset that is verified and reused, or something that is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from data_prep.manifest import Plan, differences
from data_prep.progress import Progress
from data_prep.tokenizer import LIBRARY, Tokenizer
from data_prep.wording import listed
from ledger.dataset.manifest import METADATA_NAME, TOKENIZER_NAME, read_manifest
from ledger.dataset.verify import DatasetVerification, verify_dataset
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    RefusedError,
    UnsafeError,
    VerificationError,
)
from ledger.records.dataset import DatasetManifest
from ledger.storage.files import read_regular_file
from ledger.storage.filesystem import FileSystem

__all__ = ["MAX_TOKENIZER_BYTES", "is_occupied", "verify_existing"]

MAX_TOKENIZER_BYTES: Final = 2**30


def is_occupied(target: Path, *, fs: FileSystem) -> bool:
    """Tell whether a dataset stands at the target.

    Raises:
        RefusedError: something else stands there, be it an empty folder.
    """
    if not fs.exists(target):
        return False
    if not fs.exists(target / METADATA_NAME):
        problem = "something that is no dataset stands here; it is left alone"
        raise RefusedError(
            problem, path=target, expected="nothing, or a dataset", advice="choose another folder"
        )
    return True


def verify_existing(target: Path, *, plan: Plan, progress: Progress) -> DatasetVerification:
    """Verify a dataset that stands at the target, which must be the one that a plan describes.

    Raises:
        RefusedError: it is another one, or this installation would make other ids; the message names the difference.
        VerificationError, InvalidDocumentError, UnsafeError, EvidenceMissingError: it is damaged.
    """
    with _advice_to_remove(target):
        manifest = read_manifest(target)
        different = differences(manifest, plan=plan)
        if different:
            problem = f"another dataset stands here; it differs in {listed(different)}"
            advice = "choose another folder, or ask for what is there"
            raise RefusedError(problem, path=target, advice=advice)
        progress.stage("verify the dataset", total=_stored_bytes(manifest), unit="B")
        verification = verify_dataset(target, progress=progress.advance)
        _require_sound(target, verification=verification)
        _require_same_ids(target, manifest=manifest)
    return verification


@contextmanager
def _advice_to_remove(target: Path) -> Iterator[None]:
    """Add to an error what makes room for a new preparation: nothing here does that by itself."""
    try:
        yield
    except (InvalidDocumentError, VerificationError, UnsafeError, EvidenceMissingError) as error:
        error.add_note(f"nothing is rebuilt over damage; to prepare the dataset again, remove {target}")
        raise


def _require_sound(target: Path, *, verification: DatasetVerification) -> None:
    errors = verification.errors
    if not errors:
        return
    count = "one file" if len(errors) == 1 else f"{len(errors)} files"
    problem = f"{count} of this dataset cannot be trusted: {listed(errors)}"
    raise VerificationError(problem, path=target)


def _require_same_ids(target: Path, *, manifest: DatasetManifest) -> None:
    """Insist that this installation would still make the ids that are stored."""
    path = target / TOKENIZER_NAME
    data = read_regular_file(path, max_bytes=MAX_TOKENIZER_BYTES)
    tokenizer = Tokenizer(data, eos_token=manifest.tokenizer.eos_token, path=str(path))
    found = tokenizer.canary_sha256
    if found != manifest.tokenizer.canary_sha256:
        problem = f"this installation of `{LIBRARY}` makes other ids: its canary digest is {found}"
        advice = "install the version that preparation.json names"
        raise RefusedError(problem, path=path, expected=manifest.tokenizer.canary_sha256, advice=advice)


def _stored_bytes(manifest: DatasetManifest) -> int:
    return sum(shard.bytes for split in manifest.splits.values() for shard in split.shards)
