"""The decoder: embedding, pre-norm blocks, final norm, projection back to the vocabulary."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.model.attention import Attention, document_mask, rotary_table
from trainer.model.feed_forward import FeedForward

if TYPE_CHECKING:
    from trainer.config import ModelConfig

__all__ = ["Block", "Decoder", "parameter_counts"]

INITIAL_DEVIATION = 0.02
"""Standard deviation of fresh weights (GPT-2); what writes into the residual stream gets it over sqrt(2 layers)."""


class Block(nn.Module):
    """One layer: attention and feed-forward, each behind a norm, each added to the residual stream."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.attention = Attention(width=config.width, heads=config.heads, kv_heads=config.kv_heads)
        self.feed_forward_norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.feed_forward = FeedForward(width=config.width, hidden=config.hidden)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (batch, sequence, width) to the same shape."""
        hidden = hidden + self.attention(self.attention_norm(hidden), cosine, sine, mask)
        result: Tensor = hidden + self.feed_forward(self.feed_forward_norm(hidden))
        return result


class Decoder(nn.Module):
    """A decoder-only transformer over token ids.

    Args:
        config: the model section of a resolved recipe (its vocabulary is known).
        sequence: the greatest number of positions, in tokens.
    """

    def __init__(self, config: ModelConfig, *, sequence: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=config.norm_epsilon)
        self.head = None if config.tied else nn.Parameter(torch.empty(config.vocabulary, config.width))
        cosine, sine = rotary_table(
            positions=sequence, head_size=config.width // config.heads, theta=config.rope_theta
        )
        self.cosine = nn.Buffer(cosine, persistent=False)
        self.sine = nn.Buffer(sine, persistent=False)
        self._initialise(config.layers)

    def forward(self, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
        """Map token ids (batch, sequence) to logits (batch, sequence, vocabulary).

        `documents` (batch, sequence) numbers the document of each token; a position then sees its own alone.
        """
        mask = None if documents is None else document_mask(documents)
        cosine, sine = self.cosine[: tokens.shape[1]], self.sine[: tokens.shape[1]]
        # Not `self.embedding[tokens]`: the backward pass of indexing is not deterministic.
        hidden = functional.embedding(tokens, self.embedding)
        for block in self.blocks:
            hidden = block(hidden, cosine, sine, mask)
        return functional.linear(self.norm(hidden), self.embedding if self.head is None else self.head)

    @torch.no_grad()
    def _initialise(self, layers: int) -> None:
        for name, parameter in self.named_parameters():
            if parameter.ndim < 2:
                parameter.fill_(1.0)
                continue
            scale = math.sqrt(2 * layers) if name.endswith("output.weight") else 1.0
            parameter.normal_(0.0, INITIAL_DEVIATION / scale)


def parameter_counts(model: nn.Module) -> dict[str, int]:
    """Return the trainable parameters of each part: embedding, attention, feed_forward, norms, and an untied head."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part = _part(name)
            counts[part] = counts.get(part, 0) + parameter.numel()
    return counts


def _part(name: str) -> str:
    if "norm" in name:
        return "norms"
    return next(
        (part for part in ("attention", "feed_forward") if part in name), name.split(".", maxsplit=1)[0]
    )
