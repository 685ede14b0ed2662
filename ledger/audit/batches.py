"""LG506: the microbatches that the log names, read again from the shards."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ledger.audit.corpus import Corpus, RunReader
from ledger.audit.recurrence import branch_batches
from ledger.audit.stream import Checker, Stream
from ledger.audit.track import Track, prefix
from ledger.dataset.digest import advance_data_chain
from ledger.dataset.source import Microbatch
from ledger.errors import LedgerError
from ledger.records.layout import LOG

__all__ = ["BatchChecker"]

SAMPLED_BATCHES: Final = 32
REPORTED_BATCHES: Final = 20


class BatchChecker(Checker):
    """LG506: the batches logged are the data there is; where all are read again, LG215: so are the loss tokens."""

    rules: ClassVar[tuple[str, ...]] = ("LG506",)

    def __init__(self, stream: Stream, *, corpus: Corpus, rehash: bool) -> None:
        super().__init__(stream)
        self._corpus = corpus
        self._rehash = rehash
        self._chain: str | None = None
        """`data_chain` behind the last microbatch that was read, None where not all are."""
        self._stated: dict[int, list[tuple[int, int]]] = {}
        """Microbatches of the branch to the train events that stand there: seq, prefix of their `data_chain`."""
        self._unlike: int | None = None
        """seq of the first train event with another `data_chain` than its batches make."""

    def finish(self) -> None:
        """Read a sample of the branch's microbatches again, or all of them."""
        branch = self.stream.history.branch()
        first = self.stream.track_of(branch[0].session.number) if branch else None
        if first is None:
            return
        batches = branch_batches(self.stream)
        if isinstance(batches, str):
            self.findings.skip("LG506", batches)
            return
        is_sample = not self._rehash and batches.size > SAMPLED_BATCHES
        reader = RunReader.of(first, corpus=self._corpus, scattered=is_sample)
        if isinstance(reader, str):
            self.findings.skip("LG506", reader)
            return
        chosen: range | list[int] = range(batches.size)
        if is_sample:
            self.findings.skip(
                "LG506 all", f"{SAMPLED_BATCHES} of {batches.size} microbatches were read again"
            )
            chosen = np.linspace(0, batches.size - 1, SAMPLED_BATCHES).astype(int).tolist()
        self._chain = None if is_sample else first.start.data_chain
        self._stated = {} if is_sample else self._stated_chains(first.start.microbatches)
        loss_tokens = self._compare(reader, batches, chosen)
        reader.close()
        if loss_tokens is not None and self._unlike is not None:
            self.findings.add(
                "LG506",
                "data_chain is not what the digests of the microbatches up to here make",
                where=f"{LOG} seq {self._unlike}",
            )
        if self._rehash and first.masks and loss_tokens is not None:
            self._check_loss_tokens(loss_tokens, first, microbatches=batches.size)

    def _check_loss_tokens(self, expected: int, first: Track, *, microbatches: int) -> None:
        """Compare the positions that counted with the document ends in what was read."""
        branch = self.stream.history.branch_counters()
        found = branch.loss_tokens - first.start.loss_tokens
        is_all = branch.microbatches - first.start.microbatches == microbatches
        if is_all and found != expected:
            self.findings.add(
                "LG215",
                f"{found} tokens counted in the loss, but the documents in the {microbatches} microbatches of "
                f"the branch leave {expected}",
                where=LOG,
                evidence={"found": found, "expected": expected},
            )

    def _compare(
        self, reader: RunReader, batches: NDArray[np.uint64], chosen: range | list[int]
    ) -> int | None:
        """Report microbatches that differ; return the loss tokens of those read, None where any differs."""
        differing, loss_tokens = 0, 0
        for index in chosen:
            batch = reader.read(index)
            self._follow(index, batch)
            if isinstance(batch, LedgerError):
                problem = str(batch)
            else:
                found, logged = batch.digest.hex()[:16], f"{int(batches[index]):016x}"
                if found == logged:
                    loss_tokens += batch.loss_tokens
                    continue
                at = batch.position
                problem = (
                    f"the log says that microbatch {index} of the branch has digest {logged}…, but the "
                    f"shards hold {found}… in {batch.source} at epoch {at.epoch}, offset {at.offset}"
                )
            differing += 1
            if differing <= REPORTED_BATCHES:
                self.findings.add("LG506", problem, where=f"{LOG}, microbatch {index} of the branch")
        if differing > REPORTED_BATCHES:
            self.findings.add(
                "LG506",
                f"{differing} of the {len(chosen)} microbatches that were read again are not those logged",
                where=LOG,
            )
        return None if differing else loss_tokens

    def _stated_chains(self, base: int) -> dict[int, list[tuple[int, int]]]:
        stated: dict[int, list[tuple[int, int]]] = {}
        for segment in self.stream.history.branch():
            track = self.stream.track_of(segment.session.number)
            if track is None:
                continue
            for seq, at, chain in zip(track.rows.seq, track.rows.microbatches, track.rows.chain, strict=True):
                if segment.holds(at):
                    stated.setdefault(at - base, []).append((seq, chain))
        return stated

    def _follow(self, index: int, batch: Microbatch | LedgerError) -> None:
        """Advance the chain over a microbatch, and compare it with the train events behind it."""
        if self._chain is None or isinstance(batch, LedgerError):
            self._chain = None
            return
        self._chain = advance_data_chain(self._chain, digest=batch.digest)
        expected = prefix(self._chain)
        for seq, chain in self._stated.get(index + 1, ()):
            if chain != expected and self._unlike is None:
                self._unlike = seq
