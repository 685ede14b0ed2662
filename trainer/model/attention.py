"""Causal self-attention with rotary positions and grouped queries.

Rotary positions: Su et al. 2021, arXiv:2104.09864 (the half-split form of GPT-NeoX and Llama).
Grouped queries: Ainslie et al. 2023, arXiv:2305.13245.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Attention", "document_mask", "rotary_table", "rotate"]


def rotary_table(*, positions: int, head_size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Return cosine and sine of every position's angles, each of shape (positions, head_size), in float32.

    Computed in float64, so that the table does not depend on the precision of the run.
    """
    exponents = torch.arange(0, head_size, 2, dtype=torch.float64) / head_size
    angles = torch.outer(torch.arange(positions, dtype=torch.float64), theta**-exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate queries or keys of shape (batch, heads, sequence, head_size) to their positions; computed in float32."""
    rotated: Tensor = _Rotation.apply(heads, cosine, sine)  # type: ignore[no-untyped-call]
    return rotated


class _Rotation(torch.autograd.Function):
    """A rotation, whose gradient is the rotation by the opposite angle: nothing but the tables is kept for it."""

    @staticmethod
    def forward(context: Any, heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        context.save_for_backward(cosine, sine)
        return _rotated(heads, cosine, sine, sense=1.0)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _rotated(gradient, *context.saved_tensors, sense=-1.0), None, None


def _rotated(heads: Tensor, cosine: Tensor, sine: Tensor, *, sense: float) -> Tensor:
    rotated = heads * cosine
    first, second = heads.chunk(2, dim=-1)
    first_sine, second_sine = sine.chunk(2, dim=-1)
    rotated_first, rotated_second = rotated.chunk(2, dim=-1)
    rotated_first.addcmul_(second, first_sine, value=-sense)
    rotated_second.addcmul_(first, second_sine, value=sense)
    return rotated.to(heads.dtype)


def document_mask(documents: Tensor) -> Tensor:
    """Return the (batch, 1, sequence, sequence) mask in which a position sees itself and what its document has before.

    `documents` (batch, sequence) numbers the document of each position. Rotary angles are relative, so positions
    need not start anew.
    """
    same = documents[:, :, None] == documents[:, None, :]
    return same.tril().unsqueeze(1)


class Attention(nn.Module):
    """Self-attention in which `heads / kv_heads` query heads share one head of keys and values."""

    def __init__(self, *, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.kv_heads = kv_heads
        self.head_size = width // heads
        self.input = nn.Linear(width, (heads + 2 * kv_heads) * self.head_size, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, hidden: Tensor, cosine: Tensor, sine: Tensor, mask: Tensor | None = None) -> Tensor:
        """Map (batch, sequence, width) to the same shape; no position sees a later one.

        `mask` (batch, 1, sequence, sequence) says which positions each may see at all, itself and earlier ones.
        """
        batch, sequence, width = hidden.shape
        projected = self.input(hidden).view(batch, sequence, -1, self.head_size).transpose(1, 2)
        queries, keys, values = projected.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        mixed = functional.scaled_dot_product_attention(
            rotate(queries, cosine, sine),
            rotate(keys, cosine, sine),
            values,
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=self.kv_heads < self.heads,
        )
        result: Tensor = self.output(mixed.transpose(1, 2).reshape(batch, sequence, width))
        return result
