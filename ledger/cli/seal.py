"""`ledger seal RUN`: declare a run done, on a passed verdict."""

from __future__ import annotations

import sys
from pathlib import Path

from ledger.audit import reconcile
from ledger.cli.options import AllowNetworkFs, AsJson, DataPath, RunPath
from ledger.cli.output import print_document, print_json, print_lines, verdict_exit, warn_about_link
from ledger.cli.screen import harmless
from ledger.maintain import refuse_sealed, seal_run
from ledger.report.lines import Line
from ledger.report.verdict import verdict_lines

__all__ = ["command"]


def command(
    run: RunPath, *, data: DataPath = None, as_json: AsJson = False, allow_network_fs: AllowNetworkFs = False
) -> None:
    """Check every rule and every byte and, if all of it passes, seal the run; print three lines to quote."""
    warn_about_link(Path(run))
    if run:
        refuse_sealed(run)  # before every byte is read
    verdict = reconcile(run, rehash=True, data=data)
    if verdict.verdict != "passed":
        if as_json:
            print_document(verdict)
        else:
            print_lines(verdict_lines(verdict, title=f"run {verdict.run_id or harmless(run)}"))
        sys.stderr.write(f"not sealed: the verdict is {verdict.verdict}\n")
        raise verdict_exit(verdict)
    sealed = seal_run(run, verdict, allow_network_fs=allow_network_fs)
    if as_json:
        print_json({"files": sealed.files, "bytes": sealed.bytes, "head": [*sealed.head]})
        return
    print_lines(Line(line) for line in sealed.head)
    files = "1 file" if sealed.files == 1 else f"{sealed.files:,} files"
    how = "quote these lines; check them with: ledger verify RUN --expect-head LINES"
    sys.stderr.write(f"sealed {files}, {sealed.bytes:,} bytes; {how}\n")
