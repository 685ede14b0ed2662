"""LG705: what a seal covers, and whether that is still so."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from ledger.audit.heads import QUOTED, QuotedHead, head_lines
from ledger.audit.stream import Checker, Stream
from ledger.errors import LedgerError
from ledger.records.documents import Seal, SealedFile
from ledger.records.fields import Json
from ledger.records.layout import LOCK, LOGS, SEAL
from ledger.storage.digests import hash_file
from ledger.storage.filesystem import OS, FileSystem

__all__ = ["CoveredFile", "SealChecker", "covered_files"]

NOT_COVERED: Final = frozenset({LOCK, LOGS, SEAL})
"""What lies in a run folder and is left out of its seal."""

TENSOR_FILES: Final = ".safetensors"
"""The ending of the files that only `--rehash` reads."""


class CoveredFile(NamedTuple):
    """A file that a seal covers; `bytes` is None for what is no regular file."""

    path: str
    bytes: int | None


def covered_files(run_dir: Path, *, fs: FileSystem = OS) -> Iterator[CoveredFile]:
    """Yield everything in a run folder that a seal covers, folders aside; no link is followed.

    Raises:
        StorageError: the system refused.
    """
    pending = [name for name in fs.list_directory(run_dir) if name not in NOT_COVERED]
    while pending:
        path = pending.pop()
        found = fs.stat(run_dir / path)
        if stat.S_ISDIR(found.st_mode):
            pending += [f"{path}/{name}" for name in fs.list_directory(run_dir / path)]
        else:
            yield CoveredFile(path, found.st_size if stat.S_ISREG(found.st_mode) else None)


class SealChecker(Checker):
    """LG705: the seal covers every file; nothing was added, changed or removed since."""

    rules: ClassVar[tuple[str, ...]] = ("LG705",)

    def __init__(self, stream: Stream, *, rehash: bool, quoted: QuotedHead | None) -> None:
        super().__init__(stream)
        self._rehash = rehash
        self._quoted = quoted
        self.account: dict[str, Json] | None = None
        """When the run was sealed and the lines to quote; None without a seal."""

    def finish(self) -> None:
        """Compare the seal with the run, and with the seal that was quoted."""
        self._check_quoted_seal()
        loaded = self.stream.files.seal
        seal = loaded.document
        if seal is None or loaded.sha256 is None:
            if OS.exists(self.stream.files.run_dir / SEAL):
                self.findings.add("LG705", f"the seal cannot be read: {loaded.error}", where=SEAL)
            else:
                self.findings.exempt("LG705", "the run is not sealed")
            return
        lines: list[Json] = [*head_lines(run_id=seal.run_id, log=seal.log, seal_sha256=loaded.sha256)]
        self.account = {"sealed": seal.sealed, "head": lines}
        self._check_claims(seal)
        try:
            found = {file.path: file.bytes for file in covered_files(self.stream.files.run_dir)}
        except LedgerError as error:
            self.findings.add("LG705", f"the files of the run cannot be listed: {error}", where=SEAL)
            return
        for path in sorted(found.keys() - seal.files.keys()):
            self.findings.add("LG705", "was added after the run was sealed", where=path)
        for path in sorted(seal.files.keys() - found.keys()):
            self.findings.add("LG705", "was there when the run was sealed, and was removed", where=path)
        for path in sorted(seal.files.keys() & found.keys()):
            self._check_file(path, seal.files[path], found[path])
        if not self._rehash:
            self.findings.skip(
                "LG705 digests of tensors", "tensor files were not rehashed, only their sizes; use --rehash"
            )

    def _check_claims(self, seal: Seal) -> None:
        """Check what the seal says of itself."""
        run_id = self.stream.history.run_id
        if run_id not in (None, seal.run_id):
            self.findings.add("LG705", f"seals run {seal.run_id}, not {run_id}", where=SEAL)
        verdict = seal.verdict
        if verdict.verdict != "passed":
            self.findings.add("LG705", f"seals a verdict that is {verdict.verdict}", where=SEAL)
        if (verdict.run_id, verdict.log_head) != (seal.run_id, seal.log):
            self.findings.add("LG705", "seals a verdict of another run or of another head", where=SEAL)

    def _check_file(self, path: str, sealed: SealedFile, size: int | None) -> None:
        if size is None:
            self.findings.add("LG705", "is no regular file any more", where=path)
            return
        if size != sealed.bytes:
            problem = f"holds {size} bytes, and held {sealed.bytes} when the run was sealed"
            self.findings.add("LG705", problem, where=path)
            return
        if path.endswith(TENSOR_FILES) and not self._rehash:
            return
        try:
            sha256 = hash_file(self.stream.files.run_dir / path, progress=self.stream.progress).sha256
        except LedgerError as error:
            self.findings.add("LG705", f"cannot be read: {error}", where=path)
            return
        if sha256 != sealed.sha256:
            self.findings.add(
                "LG705",
                "was changed after the run was sealed",
                where=path,
                evidence={"sealed": sealed.sha256, "found": sha256},
            )

    def _check_quoted_seal(self) -> None:
        if self._quoted is None or self._quoted.seal_sha256 is None:
            return
        loaded = self.stream.files.seal
        if loaded.sha256 != self._quoted.seal_sha256:
            found = "no seal" if loaded.sha256 is None else "another seal"
            self.findings.add(
                "LG705",
                f"the run has {found}, and not the one that was quoted",
                where=QUOTED,
                evidence={"quoted": self._quoted.seal_sha256, "found": loaded.sha256},
            )
