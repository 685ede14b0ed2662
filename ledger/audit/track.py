"""What the audit remembers of a session once its lines have gone by: compact columns, a few dozen bytes an event."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from ledger.dataset.rule import ReadingRule, parse_reading_rule
from ledger.records.events import Overflow, SessionEnd, SessionStart, Train
from ledger.records.fields import Json
from ledger.records.parts import Counters
from ledger.records.sections import RecipeSections

__all__ = ["Track", "fingerprint", "prefix"]


_encode = msgspec.json.Encoder().encode


def prefix(digest: str) -> int:
    """Return the first 16 hexadecimal digits of a digest as a number of 8 bytes."""
    return int(digest[:16], 16)


def fingerprint(*values: object) -> int:
    """Return 8 bytes that are equal, within one process, if and almost only if the values are."""
    return hash(_encode(values)) & 0xFFFF_FFFF_FFFF_FFFF


def _column() -> array[int]:
    return array("Q")


@dataclass(kw_only=True)
class TrainRows:
    """One row per train event of a session, column by column."""

    seq: array[int] = field(default_factory=_column)
    offset: array[int] = field(default_factory=_column)
    length: array[int] = field(default_factory=_column)
    step: array[int] = field(default_factory=_column)
    attempts: array[int] = field(default_factory=_column)
    microbatches: array[int] = field(default_factory=_column)
    tokens_seen: array[int] = field(default_factory=_column)
    loss_tokens: array[int] = field(default_factory=_column)
    window_start: array[int] = field(default_factory=_column)
    """`microbatches` where the window began."""
    chain: array[int] = field(default_factory=_column)
    """First 8 bytes of `data_chain`."""
    measured: array[int] = field(default_factory=_column)
    """Fingerprint of what redone work must repeat bit for bit."""
    updates: array[int] = field(default_factory=_column)
    state: array[int] = field(default_factory=_column)
    """Fingerprint of model and optimizer after the window; 0 where the event states none."""

    def add(self, event: Train, *, offset: int, length: int) -> None:
        """Append one train event."""
        self.seq.append(event.seq)
        self.offset.append(offset)
        self.length.append(length)
        self.step.append(event.step)
        self.attempts.append(event.attempts)
        self.microbatches.append(event.microbatches)
        self.tokens_seen.append(event.tokens_seen)
        self.loss_tokens.append(event.loss_tokens)
        self.window_start.append(max(0, event.microbatches - event.window.microbatches))
        self.chain.append(prefix(event.data_chain))
        self.measured.append(
            fingerprint(
                event.loss,
                event.loss_last,
                event.grad_norm,
                event.grad_norm_max,
                event.lr,
                event.loss_scale,
                event.batches,
            )
        )
        self.updates.append(event.window.updates)
        self.state.append(
            0 if event.state is None else fingerprint(event.state.model, event.state.optimizer) or 1
        )

    def __len__(self) -> int:
        return len(self.seq)

    def remainder(self, row: int, *, start: SessionStart) -> int:
        """Return the microbatches since the last attempt; an interrupted session may end with some."""
        attempts = self.attempts[row] - start.attempts
        return self.microbatches[row] - start.microbatches - attempts * start.accumulation

    def counters(self, row: int) -> Counters:
        """Return the totals at one row."""
        step, attempts = self.step[row], self.attempts[row]
        return Counters(
            step=step,
            attempts=attempts,
            skipped=max(0, attempts - step),
            microbatches=self.microbatches[row],
            tokens_seen=self.tokens_seen[row],
            loss_tokens=self.loss_tokens[row],
        )

    def last_before(self, seq: int) -> int:
        """Return the last row whose event stands at or before `seq`; -1 if none does."""
        return bisect_right(self.seq, seq) - 1


@dataclass(frozen=True, kw_only=True)
class SkipRow:
    """One overflow event."""

    seq: int
    step: int
    attempts: int
    consecutive: int
    measured: int


@dataclass(kw_only=True)
class Track:
    """One session as the audit follows it."""

    start: SessionStart
    sections: RecipeSections | None
    """Typed sections of its recipe; None where the recipe cannot be read."""
    config: Mapping[str, Json]
    """Its recipe's configuration; empty where the recipe cannot be read."""
    offset: int
    length: int
    rows: TrainRows = field(default_factory=TrainRows)
    skips: list[SkipRow] = field(default_factory=list)
    batches: array[int] = field(default_factory=_column)
    """First 8 bytes of each microbatch digest, in order."""
    skips_before: int | None = None
    """Attempts skipped in a row when the session started; None where the log does not say."""
    end: SessionEnd | None = None
    is_damaged: bool = False
    """A line of it could not be read, or lines are missing: what is counted from windows is then incomplete."""

    @property
    def number(self) -> int:
        """The session's number."""
        return self.start.session

    @property
    def tokens_per_update(self) -> int:
        """Nominal tokens of one accumulation window."""
        return self.start.tokens_per_microbatch * self.start.accumulation

    @cached_property
    def reading(self) -> ReadingRule | str:
        """The rule by which its recipe reads the data, or why it cannot be known."""
        data, cursor = self.config.get("data"), self.start.cursor
        try:
            rule = parse_reading_rule(data if isinstance(data, Mapping) else {})
        except ValueError as error:
            return f"the recipe reads its data in an order that this version does not follow: {error}"
        if rule.law is not None and set(rule.sources) != set(cursor):
            return f"the cursor names {sorted(cursor)}, the recipe's mix {sorted(rule.sources)}"
        if rule.law is None and len(cursor) != 1:
            return "the run reads a mix of sources, and the recipe does not say by which weights"
        return rule

    @cached_property
    def masks(self) -> bool | None:
        """Whether its recipe keeps positions out of the loss; None where it does not say."""
        data = self.config.get("data")
        if not isinstance(data, Mapping) or not {"loss_mask", "packing"} & data.keys():
            return None
        return data.get("loss_mask") not in (None, False, "none") or data.get("packing") not in (
            None,
            "stream",
        )

    def add_train(self, event: Train, *, offset: int, length: int) -> None:
        """Remember a train event."""
        self.rows.add(event, offset=offset, length=length)
        self.batches.extend(map(prefix, event.batches))

    def add_skip(self, event: Overflow) -> None:
        """Remember an overflow event."""
        self.skips.append(
            SkipRow(
                seq=event.seq,
                step=event.step,
                attempts=event.attempts,
                consecutive=event.consecutive,
                measured=fingerprint(event.reason, event.loss, event.grad_norm, event.loss_scale),
            )
        )

    def counters_at(self, seq: int) -> Counters:
        """Return the totals that the windows up to the event `seq` account for."""
        row = self.rows.last_before(seq)
        return self.start.counters if row < 0 else self.rows.counters(row)

    def consecutive_at(self, seq: int, step: int) -> int | None:
        """Return how many attempts in a row had been skipped at the event `seq`; None where the log does not say."""
        for skip in reversed(self.skips):
            if skip.seq <= seq:
                return skip.consecutive if skip.step == step else 0
        return 0 if step > self.start.step else self.skips_before
