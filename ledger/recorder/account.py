"""The counters of a session as they move, and the position in the data that moves with them."""

from __future__ import annotations

from ledger.dataset.digest import advance_data_chain
from ledger.errors import UsageError
from ledger.records.parts import Counters, Cursor

__all__ = ["Account"]


class Account:
    """The six running totals, the cursor and the data chain.

    `step` moves only when an update succeeded, `tokens_seen` with every processed microbatch; an attempt needs
    exactly `accumulation` microbatches.
    """

    def __init__(
        self, *, start: Counters, cursor: Cursor, data_chain: str, consecutive_skips: int, accumulation: int
    ) -> None:
        self.step = start.step
        self.attempts = start.attempts
        self.skipped = start.skipped
        self.microbatches = start.microbatches
        self.tokens_seen = start.tokens_seen
        self.loss_tokens = start.loss_tokens
        self.cursor: Cursor = dict(cursor)
        self.data_chain = data_chain
        self.consecutive_skips = consecutive_skips
        self.outstanding = 0
        """Microbatches in the open accumulation window."""
        self._accumulation = accumulation
        self._attempt_loss_tokens = 0

    @property
    def counters(self) -> Counters:
        """The six running totals as one value."""
        return Counters(
            self.step, self.attempts, self.skipped, self.microbatches, self.tokens_seen, self.loss_tokens
        )

    def microbatch(self, *, tokens: int, loss_tokens: int, digest: bytes, cursor: Cursor) -> None:
        """Count one processed microbatch.

        Raises:
            UsageError: the accumulation window is full, so an attempt is due first.
        """
        if self.outstanding == self._accumulation:
            raise UsageError(
                f"a microbatch was processed after a complete window of {self._accumulation}",
                expected="`updated` or `skipped` after every accumulation window",
            )
        self.data_chain = advance_data_chain(self.data_chain, digest=digest)
        self.cursor = dict(cursor)
        self.outstanding += 1
        self.microbatches += 1
        self.tokens_seen += tokens
        self.loss_tokens += loss_tokens
        self._attempt_loss_tokens += loss_tokens

    def success(self) -> int:
        """Count an attempt whose update was applied; return the loss tokens of its window."""
        loss_tokens = self._attempt()
        self.step += 1
        self.consecutive_skips = 0
        return loss_tokens

    def skip(self) -> None:
        """Count an attempt whose update was not applied."""
        self._attempt()
        self.skipped += 1
        self.consecutive_skips += 1

    def _attempt(self) -> int:
        if self.outstanding != self._accumulation:
            raise UsageError(
                f"an update was attempted after {self.outstanding} microbatches",
                expected=f"the {self._accumulation} microbatches of one accumulation window",
            )
        self.outstanding = 0
        self.attempts += 1
        loss_tokens, self._attempt_loss_tokens = self._attempt_loss_tokens, 0
        return loss_tokens
