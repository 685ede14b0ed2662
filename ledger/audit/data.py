"""LG501 to LG503, LG506: the dataset that the run names and the one at hand."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ledger.audit.corpus import Corpus, RunReader
from ledger.audit.recurrence import branch_batches
from ledger.audit.stream import Checker, Stream
from ledger.dataset.verify import verify_dataset
from ledger.errors import LedgerError, VerificationError
from ledger.records.events import AnyEvent, DataVerified, SessionStart, UnknownEvent
from ledger.records.layout import LOG
from ledger.records.parts import DataIdentities

__all__ = ["BatchChecker", "DataChecker"]

SAMPLED_BATCHES: Final = 32
REPORTED_BATCHES: Final = 20


class DataChecker(Checker):
    """LG501, LG502, LG503: identities, structure, bytes."""

    rules: ClassVar[tuple[str, ...]] = ("LG501", "LG502", "LG503")

    def __init__(self, stream: Stream, *, corpus: Corpus, rehash: bool) -> None:
        super().__init__(stream)
        self._corpus = corpus
        self._rehash = rehash
        self._first: DataIdentities | None = None
        self._verified_while_training: dict[str, str] = {}

    def on_session_start(self, event: SessionStart) -> None:
        """Compare the identities with the first session's, and look for the dataset."""
        first = self._first = self._first or event.data
        if event.data != first:
            self.findings.add(
                "LG501",
                f"session {event.session} reads other data than the run started with",
                where=self.stream.where,
                evidence={"found": event.data.train, "expected": first.train},
            )
        if self.stream.track is not None:
            self._corpus.attend(self.stream.track)

    def on_event(self, event: AnyEvent | UnknownEvent) -> None:
        """Note which shards were rehashed while training."""
        if isinstance(event, DataVerified):
            self._verified_while_training[event.shard] = event.time

    def finish(self) -> None:
        """Report on the dataset at hand."""
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
            if corpus.error is None:
                self.findings.skip("LG502", corpus.absence)
            self.findings.skip("LG503", corpus.absence)
        elif self._rehash:
            self._verify(where)
        else:
            self.findings.skip(
                "LG503", f"shards were not rehashed; use --rehash ({self._describe_verified()})"
            )

    def _describe_verified(self) -> str:
        if not self._verified_while_training:
            return "none was while training"
        latest = max(self._verified_while_training.values())
        return f"{len(self._verified_while_training)} were while training, the last at {latest}"

    def _verify(self, where: str) -> None:
        if self._corpus.path is None:
            return
        try:
            problems = verify_dataset(self._corpus.path).problems
        except LedgerError as error:
            self.findings.add("LG502", str(error), where=where)
            return
        for problem in problems:
            rule = "LG503" if isinstance(problem.error, VerificationError) else "LG502"
            self.findings.add(
                rule, str(problem.error), where=f"{where}/{problem.file}", severity=problem.severity
            )


class BatchChecker(Checker):
    """LG506: the batches logged are the data there is."""

    rules: ClassVar[tuple[str, ...]] = ("LG506",)

    def __init__(self, stream: Stream, *, corpus: Corpus, rehash: bool) -> None:
        super().__init__(stream)
        self._corpus = corpus
        self._rehash = rehash

    def finish(self) -> None:
        """Read a sample of the branch's microbatches again, or all of them."""
        branch = self.stream.history.branch()
        first = self.stream.track_of(branch[0].session.number) if branch else None
        if first is None:
            return
        reader = RunReader.of(first, corpus=self._corpus)
        batches = branch_batches(self.stream)
        if isinstance(reader, str) or isinstance(batches, str):
            self.findings.skip("LG506", reader if isinstance(reader, str) else str(batches))
            return
        try:
            number = reader.order.microbatch_at(next(iter(first.start.cursor.values())))
        except LedgerError as error:
            self.findings.skip("LG506", str(error))
            return
        chosen = list(range(batches.size))
        if not self._rehash and batches.size > SAMPLED_BATCHES:
            self.findings.skip(
                "LG506 all", f"{SAMPLED_BATCHES} of {batches.size} microbatches were read again"
            )
            chosen = np.linspace(0, batches.size - 1, SAMPLED_BATCHES).astype(int).tolist()
        self._compare(reader, batches, chosen, number=number)

    def _compare(
        self, reader: RunReader, batches: NDArray[np.uint64], chosen: list[int], *, number: int
    ) -> None:
        reported = 0
        for index in chosen:
            position = reader.order.position_of(number + index)
            found = reader.digest_at(position)
            logged = f"{int(batches[index]):016x}"
            if found == logged:
                continue
            self.findings.add(
                "LG506",
                str(found)
                if isinstance(found, LedgerError)
                else f"the log says that microbatch {index} of the branch has digest {logged}…, but the "
                f"shards hold {found}… at epoch {position.epoch}, offset {position.offset}",
                where=f"{LOG}, microbatch {index} of the branch",
            )
            reported += 1
            if reported >= REPORTED_BATCHES:
                return
