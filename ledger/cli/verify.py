"""`ledger verify PATH`: every byte against its digest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ledger.audit import verify
from ledger.audit.heads import parse_head
from ledger.cli.options import AsJson, DataPath, ExpectHead
from ledger.cli.output import print_document, print_lines, verdict_exit, warn_about_link
from ledger.cli.progress import shown_bytes
from ledger.report.verdict import verdict_lines

__all__ = ["command"]


def command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A run, a dataset or a checkpoint.")],
    *,
    data: DataPath = None,
    expect_head: ExpectHead = None,
    as_json: AsJson = False,
) -> None:
    """Rehash every byte of a run (with its checkpoints and dataset), of a dataset, or of a checkpoint."""
    quoted = None if expect_head is None else parse_head(expect_head)
    with shown_bytes("hashed") as progress:
        verdict = verify(path, data=data, progress=progress, quoted=quoted)
    warn_about_link(Path(path))
    if as_json:
        print_document(verdict)
    else:
        kind = str(verdict.account.get("kind", "run"))
        print_lines(verdict_lines(verdict, title=f"{kind} {path}"))
    raise verdict_exit(verdict)
