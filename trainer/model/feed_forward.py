"""The gated feed-forward layer SwiGLU (Shazeer 2020, arXiv:2002.05202)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["FeedForward"]


class FeedForward(nn.Module):
    """`output(silu(gate(x)) * up(x))`, gate and up in one projection."""

    def __init__(self, *, width: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Linear(width, 2 * hidden, bias=False)
        self.output = nn.Linear(hidden, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, sequence, width) to the same shape, each position by itself."""
        gate, up = self.input(hidden).chunk(2, dim=-1)
        result: Tensor = self.output(functional.silu(gate) * up)
        return result
