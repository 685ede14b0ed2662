"""Batch and budget arithmetic, in target positions ("tokens") of the whole job.

A source of n tokens offers n − 1 targets: its last token is predicted but never read. Of these a run uses whole
microbatches; the rest of an epoch is dropped and counted. The nominal batch (accumulation × replicas × sequences ×
length) is the one that stands at the head of nanoGPT's `train.py`; https://github.com/karpathy/nanoGPT.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "EpochPosition",
    "advanced",
    "dropped_tokens",
    "microbatches_per_epoch",
    "planned_tokens",
    "position_at",
    "repeated_tokens",
    "target_step",
    "tokens_per_microbatch",
    "tokens_per_update",
    "usable_tokens",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPosition:
    """Where reading a source stands: whole passes done, and tokens consumed in the present one.

    An epoch's end is written as the next one's beginning: (epoch + 1, 0).
    """

    epoch: int
    offset: int


def tokens_per_microbatch(*, micro_batch: int, sequence_length: int, replicas: int = 1) -> int:
    """Return the target positions of one synchronous forward and backward pass of all data-parallel replicas."""
    _require_positive(micro_batch=micro_batch, sequence_length=sequence_length, replicas=replicas)
    return micro_batch * sequence_length * replicas


def tokens_per_update(*, tokens_per_microbatch: int, accumulation: int) -> int:
    """Return the target positions of one accumulation window, which is never shortened or padded."""
    _require_positive(tokens_per_microbatch=tokens_per_microbatch, accumulation=accumulation)
    return tokens_per_microbatch * accumulation


def planned_tokens(*, start_step: int, target_step: int, tokens_per_update: int) -> int:
    """Return the tokens that the successful updates from `start_step` to `target_step` take: a plan, no measurement.

    Raises `ValueError` if the target lies before the start.
    """
    _require_positive(tokens_per_update=tokens_per_update)
    if not 0 <= start_step <= target_step:
        raise ValueError(f"target step {target_step} lies before start step {start_step}")
    return (target_step - start_step) * tokens_per_update


def target_step(*, budget_tokens: int, tokens_per_update: int, start_step: int = 0) -> int:
    """Return the first step at which at least `budget_tokens` were planned since `start_step`."""
    _require_positive(tokens_per_update=tokens_per_update)
    if budget_tokens < 0 or start_step < 0:
        raise ValueError("a budget and a start step are not negative")
    return start_step + -(-budget_tokens // tokens_per_update)


def usable_tokens(*, tokens: int, tokens_per_microbatch: int) -> int:
    """Return the positions an epoch uses: the greatest multiple of a microbatch that leaves a last target.

    0 if the source does not fill one microbatch.
    """
    _require_positive(tokens_per_microbatch=tokens_per_microbatch)
    if tokens < 0:
        raise ValueError(f"a source cannot hold {tokens} tokens")
    return max(tokens - 1, 0) // tokens_per_microbatch * tokens_per_microbatch


def repeated_tokens(*, repeat: int, tokens: int, tokens_per_microbatch: int) -> int:
    """Return the positions of an epoch that is the source's first `repeat` microbatches, over and over.

    Raises `ValueError` if the source holds fewer.
    """
    _require_positive(repeat=repeat)
    usable = usable_tokens(tokens=tokens, tokens_per_microbatch=tokens_per_microbatch)
    wanted = repeat * tokens_per_microbatch
    if wanted > usable:
        raise ValueError(
            f"repeating {repeat} microbatches takes {wanted} tokens and a last target; the source has {tokens}"
        )
    return wanted


def dropped_tokens(*, tokens: int, tokens_per_microbatch: int) -> int:
    """Return the target positions at an epoch's end that no microbatch uses."""
    return max(tokens - 1, 0) - usable_tokens(tokens=tokens, tokens_per_microbatch=tokens_per_microbatch)


def microbatches_per_epoch(*, usable_tokens: int, tokens_per_microbatch: int) -> int:
    """Return the microbatches of one pass.

    Raises `ValueError` if the usable tokens are not whole microbatches.
    """
    _require_positive(tokens_per_microbatch=tokens_per_microbatch)
    whole, rest = divmod(usable_tokens, tokens_per_microbatch)
    if rest or usable_tokens < 0:
        raise ValueError(
            f"{usable_tokens} usable tokens are not whole microbatches of {tokens_per_microbatch}"
        )
    return whole


def position_at(*, consumed_tokens: int, usable_tokens: int) -> EpochPosition:
    """Return where reading stands after `consumed_tokens` of a source since epoch 0."""
    _require_positive(usable_tokens=usable_tokens)
    if consumed_tokens < 0:
        raise ValueError(f"{consumed_tokens} tokens cannot have been consumed")
    epoch, offset = divmod(consumed_tokens, usable_tokens)
    return EpochPosition(epoch=epoch, offset=offset)


def advanced(position: EpochPosition, *, tokens: int, usable_tokens: int) -> EpochPosition:
    """Return the position after `tokens` more were consumed."""
    before = position.epoch * usable_tokens + position.offset
    return position_at(consumed_tokens=before + tokens, usable_tokens=usable_tokens)


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, not {number}")
