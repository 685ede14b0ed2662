"""LG501 to LG504: the data that the run names and what is at hand of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from ledger.audit.corpus import Corpus
from ledger.audit.stream import Checker, Stream
from ledger.dataset.leakage import find_held_out_documents, find_shared_documents
from ledger.dataset.manifest import Dataset, listed_files
from ledger.dataset.verify import DatasetProblem, check_tokens, verify_dataset
from ledger.errors import LedgerError, StorageError, VerificationError
from ledger.records.events import AnyEvent, DataVerified, SessionStart, UnknownEvent
from ledger.records.parts import DataIdentities

__all__ = ["DataChecker"]


class DataChecker(Checker):
    """LG501 to LG504: identities, structure, bytes, tokens."""

    rules: ClassVar[tuple[str, ...]] = ("LG501", "LG502", "LG503", "LG504")

    def __init__(self, stream: Stream, *, corpus: Corpus, rehash: bool) -> None:
        super().__init__(stream)
        self._corpus = corpus
        self._rehash = rehash
        self._first: DataIdentities | None = None
        self._verified: dict[str, tuple[DataVerified, str]] = {}
        """Shard to the last event that says it was rehashed while training, and its place."""

    @property
    def verified_while_training(self) -> dict[str, str]:
        """Shard to the time when it was last rehashed while training, for the account."""
        return {shard: event.time for shard, (event, _) in sorted(self._verified.items())}

    def on_session_start(self, event: SessionStart) -> None:
        """Compare the identities with the first session's, and look for the data."""
        first = self._first = self._first or event.data
        if event.data != first:
            self.findings.add(
                "LG501",
                f"session {event.session} reads other data than the run started with",
                where=self.stream.where,
                evidence={"found": event.data.train, "expected": first.train},
            )
        if event.session == 1:
            self._check_continued(event)
        if self.stream.track is not None:
            self._corpus.attend(self.stream.track)

    def _check_continued(self, event: SessionStart) -> None:
        """A run that continues another one reads what that one read."""
        parent = None if event.run is None else event.run.parent
        if parent is None or parent.mode != "continue":
            return
        manifest = self.stream.files.parent_manifest
        if manifest.document is None or manifest.sha256 != parent.manifest_sha256:
            return  # LG601 says why
        expected = manifest.document.data.train
        if event.data.train != expected:
            self.findings.add(
                "LG501",
                "continues another run, but reads other data than its parent did",
                where=self.stream.where,
                evidence={"found": event.data.train, "expected": expected},
            )

    def on_rare_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Note which shards were rehashed while training."""
        if isinstance(event, DataVerified):
            self._verified[event.shard] = (event, self.stream.where)

    def finish(self) -> None:
        """Report on the data at hand."""
        corpus = self._corpus
        where = str(corpus.path) if corpus.path else "dataset"
        if corpus.error is not None:
            self.findings.add("LG502", str(corpus.error), where=where)
        if corpus.other_sha256 is not None and self._first is not None:
            self.findings.add(
                "LG501",
                f"the dataset here is {corpus.other_sha256}, the run read {self._first.train}: its bytes "
                "cannot be checked",
                where=where,
                severity="missing",
            )
        if corpus.absence is not None:
            self._skip_bytes(corpus.absence)
            return
        self._check_verified()
        if not self._rehash:
            self.findings.skip(
                "LG503", f"shards were not rehashed; use --rehash ({self._describe_verified()})"
            )
            self.findings.skip("LG504", "tokens were not read; use --rehash")
            return
        datasets = [*corpus.datasets.values()]
        if corpus.held_out is not None:
            datasets.append(corpus.held_out)
        for dataset in {dataset.metadata_sha256: dataset for dataset in datasets}.values():
            self._verify(dataset)

    def _skip_bytes(self, absence: str) -> None:
        if self._corpus.error is None:
            self.findings.skip("LG502", absence)
        for rule in ("LG503", "LG504"):
            self.findings.skip(rule, absence)

    def _describe_verified(self) -> str:
        if not self._verified:
            return "none was while training"
        times = self.verified_while_training
        return f"{len(times)} were while training, the last at {max(times.values())}"

    def _check_verified(self) -> None:
        """Compare what was rehashed while training with the manifests."""
        datasets = self._corpus.datasets
        known = {
            (f"{source}/{file}" if self._corpus.is_mix else file): sha256
            for source, dataset in datasets.items()
            for file, sha256 in listed_files(dataset.manifest).items()
        }
        for shard, (event, where) in self._verified.items():
            if known.get(shard) != event.sha256:
                self.findings.add(
                    "LG503",
                    f"{shard} was found to hash to {event.sha256} while training",
                    where=where,
                    evidence={"found": event.sha256, "expected": known.get(shard)},
                )

    def _verify(self, dataset: Dataset) -> None:
        """Rehash a dataset; where its bytes are right, read its tokens, too."""
        where = str(dataset.directory)
        try:
            problems = verify_dataset(dataset.directory, progress=self.stream.progress).problems
            for problem in problems:
                rule = "LG503" if isinstance(problem.error, VerificationError) else "LG502"
                self._add(rule, problem, where=where)
            if any(problem.severity == "error" for problem in problems):
                self.findings.skip("LG504", "the dataset's files are not what its manifest says")
                return
            for problem in _token_problems(dataset, self._corpus.held_out):
                self._add("LG504", problem, where=where)
        except StorageError:
            raise
        except LedgerError as error:
            self.findings.add("LG502", str(error), where=where)

    def _add(self, rule: str, problem: DatasetProblem, *, where: str) -> None:
        self.findings.add(
            rule, str(problem.error), where=f"{where}/{problem.file}", severity=problem.severity
        )


def _token_problems(dataset: Dataset, held_out: Dataset | None) -> Iterator[DatasetProblem]:
    yield from check_tokens(dataset.directory)
    yield from find_shared_documents(dataset)
    if held_out is not None and held_out.metadata_sha256 != dataset.metadata_sha256:
        yield from find_held_out_documents(dataset, held_out=held_out)
