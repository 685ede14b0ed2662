"""`ledger verify PATH`: every byte against its digest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledger.audit import Attestation, read_attestation, verify, verify_attestation
from ledger.audit.attestation import attestation_path
from ledger.audit.heads import parse_head
from ledger.cli.options import AsJson, DataPath, ExpectHead
from ledger.cli.output import print_lines, print_record, screen, verdict_exit, warn_about_link
from ledger.cli.progress import shown_bytes
from ledger.errors import UsageError
from ledger.report.verdict import verdict_lines
from ledger.storage.files import is_folder
from ledger.storage.filesystem import OS

__all__ = ["command"]


def command(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A run, a dataset, a checkpoint, or an attestation.")
    ],
    *,
    data: DataPath = None,
    expect_head: ExpectHead = None,
    attestation: Annotated[
        str | None,
        typer.Option(
            "--attestation", metavar="FILE", help="What attests this run, or this checkpoint, must hold too."
        ),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(
            "--public-key",
            metavar="FILE",
            help="Who must have signed it: an ed25519 key (PEM; needs [attest]).",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rehash every byte of a run (with its checkpoints and dataset), of a dataset, or of a checkpoint.

    Of an attestation: its signature, what it states, and the files that it is about, where its run lies beside it.
    """
    quoted = None if expect_head is None else parse_head(expect_head)
    is_attestation = bool(path) and OS.exists(path) and not is_folder(path)
    if is_attestation and (attestation or quoted or data):
        raise UsageError("is a file: an attestation, it seems", path=path, expected="a run for these options")
    attested = _read(path if is_attestation else attestation, run=path, public_key=public_key)
    with shown_bytes("hashed") as progress:
        if is_attestation and attested is not None:
            verdict = verify_attestation(attested, progress=progress)
        else:
            verdict = verify(path, data=data, progress=progress, quoted=quoted, attestation=attested)
    warn_about_link(Path(path))
    if as_json:
        print_record(verdict)
    else:
        kind = str(verdict.account.get("kind", "run"))
        print_lines(verdict_lines(verdict, title=f"{kind} {path}", screen=screen()))
    raise verdict_exit(verdict)


def _read(file: str | None, *, run: str, public_key: str | None) -> Attestation | None:
    """Read the attestation that is meant: the one named, or with a key alone the one beside the run."""
    if file is None and public_key is None:
        return None
    return read_attestation(attestation_path(run) if file is None else file, public_key=public_key)
