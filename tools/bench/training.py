"""Training throughput of the decoder against a plain GPT of the same geometry: fp32 and bf16, one and two threads.

The target (at least 1.0) speaks of nanoGPT, which no package index offers. The plain GPT here is written from the
published architecture (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners": learned positions,
pre-norm blocks with LayerNorm, one fused projection for attention, GELU of four times the width, a tied head, biases)
with the attention kernel and the optimizer that nanoGPT takes on a CPU: torch's scaled_dot_product_attention, AdamW
without the fused kernel, gradients clipped by torch. The decoder is trained as the trainer does it. Both see the same
batch, the feed-forward sizes make their parameters equal to within a percent, and they take turns.

    python -P tools/bench/training.py [--rounds N] [--threads 1,2] [--batch N]

Where the processor has no instructions for bfloat16 an update takes minutes: measure with `--batch 1` there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parent))

from _measure import Contender, measure

from trainer.config import Bf16Config, Fp32Config, ModelConfig, OptimizerConfig, PrecisionConfig
from trainer.model.decoder import Decoder
from trainer.optim import Optimizer, partition
from trainer.precision import autocast, clip_gradients, gradient_norm

BATCH, SEQUENCE, VOCABULARY = 8, 256, 2_048
WIDTH, LAYERS, HEADS = 256, 6, 8
HIDDEN: Final = 696
"""Three matrices of this inner size hold about what two of four times the width, their biases and positions do."""
CPU: Final = torch.device("cpu")
PRECISIONS: Final[tuple[PrecisionConfig, ...]] = (Fp32Config(name="fp32"), Bf16Config(name="bf16"))
OPTIMIZER: Final = OptimizerConfig(learning_rate=1e-4)

Step = Callable[[], object]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="updates of each kind that are measured")
    parser.add_argument("--threads", default="1,2", help="numbers of threads to try")
    parser.add_argument("--batch", type=int, default=BATCH, help="sequences of a batch")
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (options.batch, SEQUENCE + 1))
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    ours = Decoder(
        ModelConfig(
            vocabulary=VOCABULARY, width=WIDTH, layers=LAYERS, heads=HEADS, kv_heads=HEADS, hidden=HIDDEN
        ),
        sequence=SEQUENCE,
    )
    plain = PlainGpt()
    print(
        f"parameters: decoder {_count(ours):,}, plain GPT {_count(plain):,}; batch {options.batch} x {SEQUENCE}"
    )
    for precision in PRECISIONS:
        contenders = {
            "plain GPT": plain_step(plain, precision, inputs, targets),
            "decoder": decoder_step(ours, precision, inputs, targets),
        }
        for threads in map(int, options.threads.split(",")):
            torch.set_num_threads(threads)
            print(f"\n{precision.name}, {threads} thread{'s' * (threads > 1)}")
            measure(
                {name: Contender(step, tokens.numel() - options.batch) for name, step in contenders.items()},
                rounds=options.rounds,
                unit="tokens/s",
                base="plain GPT",
            )
    return 0


def decoder_step(model: Decoder, precision: PrecisionConfig, inputs: Tensor, targets: Tensor) -> Step:
    """Return one update as the trainer makes it."""
    parameters = list(model.parameters())
    optimizer = Optimizer(partition(model), OPTIMIZER)
    optimizer.set_rates(dict.fromkeys(partition(model), OPTIMIZER.learning_rate))

    def step() -> None:
        with autocast(precision, CPU):
            logits = model(inputs)
        loss = functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="sum")
        (loss / targets.numel()).backward()  # type: ignore[no-untyped-call]
        norm = gradient_norm(parameters).item()
        clip_gradients(parameters, norm=norm, limit=OPTIMIZER.clip_norm)
        optimizer.step()
        optimizer.zero_grad()

    return step


def plain_step(model: PlainGpt, precision: PrecisionConfig, inputs: Tensor, targets: Tensor) -> Step:
    """Return one update as a plain loop makes it."""
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    others = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=OPTIMIZER.learning_rate,
        betas=(0.9, 0.95),
    )

    def step() -> None:
        with autocast(precision, CPU):
            logits = model(inputs)
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


class PlainBlock(nn.Module):
    """Attention and a feed-forward layer, each behind a LayerNorm, each added to the residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.projection = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        """Map (batch, sequence, width) to the same shape."""
        batch, sequence, width = hidden.shape
        queries, keys, values = (
            part.view(batch, sequence, HEADS, width // HEADS).transpose(1, 2)
            for part in self.attention(self.first_norm(hidden)).split(width, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden = hidden + self.projection(mixed.transpose(1, 2).reshape(batch, sequence, width))
        result: Tensor = hidden + self.outer(functional.gelu(self.inner(self.second_norm(hidden))))
        return result


class PlainGpt(nn.Module):
    """A GPT-2 without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(SEQUENCE, WIDTH)
        self.blocks = nn.Sequential(*(PlainBlock() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        for parameter in self.parameters():
            if parameter.ndim >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids (batch, sequence) to logits (batch, sequence, vocabulary)."""
        hidden = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return functional.linear(self.norm(self.blocks(hidden)), self.tokens.weight)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    sys.exit(main())
