"""An engine that works while it is still being proven that its back end makes the right ids.

Reading and tokenizing begin at once; no result is handed out before the proof is done, so nothing unproven is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from data_prep.encoding import EncodedBatch
from data_prep.engines.base import EncoderSpec, Engine, Pending
from data_prep.sources.document import Document

__all__ = ["DisprovedError", "ProvenEngine"]


class DisprovedError(Exception):
    """The back end makes other ids, or nobody can tell: everything it made is dropped. The message says why."""


class ProvenEngine:
    """An engine whose results wait for a proof."""

    def __init__(self, engine: Engine, *, proof: Future[str | None]) -> None:
        """Take an engine that is loaded or will be, and what returns why its ids cannot be trusted, or null."""
        self.name = engine.name
        self.in_flight = engine.in_flight
        self._engine = engine
        self._proof = proof

    def load(self, spec: EncoderSpec) -> None:
        """Load the back end."""
        self._engine.load(spec)

    def submit(self, documents: Sequence[Document]) -> Pending:
        """Begin a batch; its ids, and its errors, are handed out once they can be trusted.

        The result raises DisprovedError where they cannot.
        """
        pending = self._engine.submit(documents)

        def proven() -> EncodedBatch:
            self.require_proof()
            return pending()

        return proven

    def require_proof(self) -> None:
        """Wait for the proof; raises DisprovedError where there is none."""
        reason = self._proof.result()
        if reason is not None:
            raise DisprovedError(reason)

    def close(self) -> None:
        """End the workers."""
        self._engine.close()
