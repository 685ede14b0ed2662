"""LG408: whether a checkpoint's files hold the state that was live when it was taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple

from ledger.audit.files import CheckpointFolder
from ledger.audit.optimizer_steps import parse_state_names
from ledger.audit.stream import Checker
from ledger.records.documents import CheckpointManifest
from ledger.records.layout import OPTIMIZER_FILE
from ledger.storage.digests import tensor_table_sha256

__all__ = ["LiveDigestChecker"]

FILES: Final = {"model": "model.safetensors", "optimizer": OPTIMIZER_FILE}
"""Part of the state to the file that holds its tensors."""


class _Difference(NamedTuple):
    """Tensors that do not make up the digest of the live state."""

    path: str
    live: str
    found: str


class LiveDigestChecker(Checker):
    """LG408: the tensors that a manifest describes make up the digests captured from live objects.

    The bytes behind the manifest's digests are LG402's. The digest covers names; a loop that hashes its tensors under
    other names than it saves them cannot be told from one that saves other tensors. So a difference is an error only
    where the run itself shows that the names are the same: the part matches in another checkpoint, or the optimizer's
    file is named as the records say.
    """

    rules: ClassVar[tuple[str, ...]] = ("LG408",)

    def finish(self) -> None:
        """Compare every complete checkpoint, part by part."""
        manifests = [
            (folder, folder.manifest.document)
            for folder in self.stream.files.complete_checkpoints.values()
            if folder.manifest.document is not None
        ]
        is_named_as_stored = any(self._is_named_by_group(manifest) for _, manifest in manifests)
        for part in FILES:
            compared = list(self._compare(part, manifests))
            differences = [difference for difference in compared if difference is not None]
            if len(differences) == len(compared) and differences and not is_named_as_stored:
                self.findings.skip(
                    f"LG408 {part}",
                    f"in no checkpoint do the tensors of {FILES[part]} make up the live digest: the loop names or "
                    "chooses them otherwise when it hashes them",
                )
                continue
            for path, live, found in differences:
                self.findings.add(
                    "LG408",
                    f"its tensors are not the {part} that was live when it was captured",
                    where=f"{path}/{FILES[part]}",
                    evidence={"live": live, "found": found},
                )
        if all(f"LG408 {part}" in self.findings.not_checked for part in FILES):
            self.findings.skip("LG408", "neither of model and optimizer can be compared")

    def _compare(
        self, part: str, manifests: list[tuple[CheckpointFolder, CheckpointManifest]]
    ) -> Iterator[_Difference | None]:
        """Yield None for each checkpoint whose tensors are the live ones, else what differs."""
        for folder, manifest in manifests:
            live = getattr(manifest.state, part)
            if live is None:
                continue  # the loop took no digest of it
            entry = manifest.files.get(FILES[part])
            if entry is None or entry.tensors is None:
                self.findings.skip(f"LG408 {part}", f"{folder.path} has no {FILES[part]}")
                continue
            found = tensor_table_sha256(entry.tensors)
            yield None if found == live else _Difference(folder.path, live, found)

    def _is_named_by_group(self, manifest: CheckpointManifest) -> bool:
        groups = self.stream.optimizer_groups
        entry = manifest.files.get(OPTIMIZER_FILE)
        if not groups or entry is None or not entry.tensors:
            return False
        names = parse_state_names(entry.tensors, groups=groups)
        return not isinstance(names, str)
