"""`ledger seal RUN`: declare a run done, on a passed verdict, and attest it if asked to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ledger.audit import reconcile
from ledger.audit.statement import final_checkpoint_of
from ledger.cli.options import AllowNetworkFs, AsJson, DataPath, RunPath
from ledger.cli.output import (
    print_json,
    print_lines,
    print_record,
    screen,
    verdict_exit,
    warn,
    warn_about_link,
)
from ledger.cli.progress import shown_bytes
from ledger.cli.screen import harmless
from ledger.errors import LedgerError, UsageError
from ledger.maintain import attest_run, is_sealed, read_seal, refuse_sealed, seal_run
from ledger.records.documents import Verdict
from ledger.report.lines import Line
from ledger.report.verdict import verdict_lines
from ledger.storage.signing import Signer, is_readable_by_others, read_signer

__all__ = ["command"]


def command(
    run: RunPath,
    *,
    attest: Annotated[
        bool,
        typer.Option(
            "--attest", help="Also write an in-toto attestation of the final checkpoint, beside the run."
        ),
    ] = False,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="FILE", help="Sign it with this ed25519 key (PEM; needs [attest])."),
    ] = None,
    data: DataPath = None,
    as_json: AsJson = False,
    allow_network_fs: AllowNetworkFs = False,
) -> None:
    """Check every rule and every byte and, if all of it passes, seal the run; print three lines to quote.

    With --attest, a run that is sealed already is checked again and attested.
    """
    warn_about_link(Path(run))
    signer = _signer(key, attest=attest)
    if run and not attest:
        refuse_sealed(run)  # before every byte is read
    with shown_bytes("hashed") as progress:
        verdict = reconcile(run, rehash=True, data=data, progress=progress)
    if verdict.verdict != "passed":
        _refuse(verdict, run=run, as_json=as_json)
    if attest:
        final_checkpoint_of(verdict, run_dir=Path(run))
    sealed = read_seal(run) if is_sealed(run) else seal_run(run, verdict, allow_network_fs=allow_network_fs)
    attestation = None
    if attest:
        attestation = _attest(run, signer=signer, allow_network_fs=allow_network_fs)
    if as_json:
        found = {"files": sealed.files, "bytes": sealed.bytes, "head": [*sealed.head]}
        print_json(found | {"attestation": attestation})
        return
    print_lines(Line(line) for line in sealed.head)
    files = "1 file" if sealed.files == 1 else f"{sealed.files:,} files"
    how = "quote these lines; check them with: ledger verify RUN --expect-head LINES"
    sys.stderr.write(f"sealed {files}, {sealed.bytes:,} bytes; {how}\n")
    if attestation is not None:
        signed = "not signed" if signer is None else f"signed by {signer.keyid}"
        sys.stderr.write(f"wrote {ascii(attestation)[1:-1]}, {signed}\n")


def _signer(key: str | None, *, attest: bool) -> Signer | None:
    """Read the key, before anything is written."""
    if key is None:
        return None
    if not attest:
        raise UsageError("--key signs an attestation", expected="--attest beside it")
    signer = read_signer(key)
    if is_readable_by_others(key):
        warn(f"{key} can be read by others than its owner; a private key should not: chmod 600 {key}")
    return signer


def _refuse(verdict: Verdict, *, run: str, as_json: bool) -> None:
    if as_json:
        print_record(verdict)
    else:
        print_lines(verdict_lines(verdict, title=f"run {verdict.run_id or harmless(run)}", screen=screen()))
    sys.stderr.write(f"not sealed: the verdict is {verdict.verdict}\n")
    raise verdict_exit(verdict)


def _attest(run: str, *, signer: Signer | None, allow_network_fs: bool) -> str:
    try:
        return str(attest_run(run, signer=signer, allow_network_fs=allow_network_fs))
    except LedgerError as error:
        error.add_note(
            f"the run is sealed, but not attested; once that is solved: ledger seal {run} --attest"
        )
        raise
