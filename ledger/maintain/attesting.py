"""Attesting a sealed run: a statement over its final checkpoint, in an envelope beside the run.

It lies beside the run and not in it, because a seal promises that nothing is added to what it covers, and because the
statement names the seal. It holds no time of its own: writing it again writes the same bytes.
"""

from __future__ import annotations

import os
from pathlib import Path

from ledger.audit.attestation import attestation_path
from ledger.audit.statement import statement_of
from ledger.records.attestation import PAYLOAD_TYPE
from ledger.storage.atomic import create_file
from ledger.storage.canonical import canonical_json
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.mounts import refuse_network_file_system
from ledger.storage.signing import Signer, envelope_bytes

__all__ = ["attest_run"]


def attest_run(
    run_dir: str | os.PathLike[str],
    *,
    signer: Signer | None = None,
    allow_network_fs: bool = False,
    fs: FileSystem = OS,
) -> Path:
    """Write the attestation of a sealed run beside it, signed if there is a key; returns where it lies.

    Args:
        run_dir: the run, sealed and verified as it is now.
        signer: the key to sign with; without one the envelope bears no signature.
        allow_network_fs: write although it lies on a network file system.
        fs: the seam to the system.

    Raises:
        EvidenceMissingError: the run is not sealed, or keeps no final checkpoint.
        RefusedError: another attestation lies there; it is left alone.
        VerificationError: the final checkpoint is not the sealed one.
        UnsafeError: it lies on a network file system and nobody asked for writing there.
        StorageError: the system refused; there is no attestation, or the whole one.
    """
    path = attestation_path(run_dir)
    refuse_network_file_system(path.parent, is_allowed=allow_network_fs)
    statement = statement_of(Path(run_dir))
    data = envelope_bytes(
        canonical_json(statement.model_dump(by_alias=True)),
        payload_type=PAYLOAD_TYPE,
        signers=[] if signer is None else [signer],
    )
    create_file(path, data, fs=fs)
    return path
