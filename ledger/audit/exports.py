"""LG601: weights that were exported are what the log says of them. They may be removed; nothing rests on them."""

from __future__ import annotations

from typing import ClassVar

from ledger.audit.files import inside
from ledger.audit.stream import Checker, Stream
from ledger.records.events import AnyEvent, Export, UnknownEvent
from ledger.records.parts import StoredFile
from ledger.storage.digests import hash_file
from ledger.storage.files import is_own_file
from ledger.storage.filesystem import OS

__all__ = ["ExportChecker"]


class ExportChecker(Checker):
    """Part of LG601: sizes always, digests with `rehash`."""

    rules: ClassVar[tuple[str, ...]] = ("LG601",)

    def __init__(self, stream: Stream, *, rehash: bool) -> None:
        super().__init__(stream)
        self._rehash = rehash

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Compare an export with its files."""
        if not isinstance(event, Export):
            return
        if not self._rehash:
            self.findings.skip(
                "LG601 exports", "exported weights were not rehashed, only their sizes; use --rehash"
            )
        for name, stored in sorted(event.files.items()):
            self._check_file(f"{event.path}/{name}", stored)

    def _check_file(self, where: str, stored: StoredFile) -> None:
        path = inside(self.stream.files.run_dir, where)
        if path is None:
            self.findings.add("LG601", "leads out of the run folder", where=where)
        elif not is_own_file(path):
            self.findings.add("LG601", "was exported and is not there any more", where=where, severity="hint")
        elif OS.stat(path).st_size != stored.bytes or (
            self._rehash and hash_file(path, progress=self.stream.progress).sha256 != stored.sha256
        ):
            self.findings.add("LG601", "was changed: the log names other bytes", where=where)
