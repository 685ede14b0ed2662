"""The trainer's loop with its recorder against a bare loop on the same decoder, update by update.

The bare loop is nanoGPT's: forward, loss, backward, `clip_grad_norm_`, AdamW without the fused kernel, batches cut from
an array in memory, nothing written down. The trainer reads a dataset, digests every batch, checks what it is about to
apply, and records each update. Both take turns inside one session: the trainer asks before each update whether to stop.

    python -P tools/bench/loop.py [--updates N] [--threads 1,2] [--precisions fp32,bf16] [--micro-batch N]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from rich.console import Console
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.trainer.tiny import VOCABULARY, tiny_config, write_dataset
from trainer.config import TrainerConfig
from trainer.model.decoder import Decoder
from trainer.precision import autocast
from trainer.session import Request, run_session
from trainer.signals import StopRequest

MODEL = {"vocabulary": 2_048, "width": 256, "layers": 6, "heads": 8, "kv_heads": 8, "hidden": 696}
SEQUENCE = 256
CPU = torch.device("cpu")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--updates", type=int, default=8, help="updates of each that are measured")
    parser.add_argument("--threads", default="1,2", help="numbers of threads to try")
    parser.add_argument("--precisions", default="fp32,bf16", help="number formats to try")
    parser.add_argument("--micro-batch", type=int, default=8, help="sequences of a batch")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        tokens = (options.updates + 2) * options.micro_batch * SEQUENCE + 1
        data = write_dataset(Path(folder) / "data", train_tokens=tokens)
        for precision in options.precisions.split(","):
            for threads in map(int, options.threads.split(",")):
                config = tiny_config(
                    data,
                    run={"target_step": options.updates + 1},
                    batch={"micro_batch": options.micro_batch, "sequence": SEQUENCE},
                    model=MODEL,
                    precision={"name": precision},
                    logging={"interval": 1, "evidence": False},
                    evaluation={"enabled": False},
                    checkpoint={"policy": "none"},
                    machine={"threads": threads},
                )
                print(f"\n{precision}, {threads} thread{'s' * (threads > 1)}")
                show(compare(config, Path(folder) / f"{precision}-{threads}"), config.tokens_per_update)
    return 0


def compare(config: TrainerConfig, run: Path) -> Alternation:
    """Train one session in which a bare update follows each of the trainer's; return the times of both."""
    turns = Alternation(bare_step(config))
    run_session(Request(config=config, run_dir=run), console=Console(quiet=True), stop=turns)
    return turns


class Alternation(StopRequest):
    """Never asks to stop; makes a bare update whenever the trainer looks, and times both."""

    def __init__(self, bare: Callable[[], object]) -> None:
        super().__init__()
        self.times: dict[str, list[tuple[float, float]]] = {"bare loop": [], "trainer": []}
        self._bare = bare
        self._since: tuple[float, float] | None = None

    @property
    def is_made(self) -> bool:
        """Tell that nobody asked, after a turn of the bare loop."""
        now = moment()
        if self._since is not None:
            self.times["trainer"].append(difference(now, self._since))
            before = moment()
            self._bare()
            self.times["bare loop"].append(difference(moment(), before))
        self._since = moment()
        return False


def bare_step(config: TrainerConfig) -> Callable[[], None]:
    """Return one update as a plain loop makes it."""
    torch.manual_seed(0)
    model = Decoder(config.model, sequence=SEQUENCE)
    size = config.batch.tokens_per_microbatch
    text = torch.randint(VOCABULARY, (4 * size + 1,))
    matrices = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    others = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-3,
        betas=(0.9, 0.95),
    )

    def step() -> None:
        start = int(torch.randint(text.numel() - size, ()))
        inputs, targets = (text[start + shift : start + shift + size].view(-1, SEQUENCE) for shift in (0, 1))
        with autocast(config.precision, CPU):
            loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step


def moment() -> tuple[float, float]:
    """Return the clock's time and the processor's."""
    return time.perf_counter(), time.process_time()


def difference(later: tuple[float, float], earlier: tuple[float, float]) -> tuple[float, float]:
    """Return what passed by both."""
    return later[0] - earlier[0], later[1] - earlier[1]


def show(turns: Alternation, tokens: int) -> None:
    """Print tokens per second of both and the trainer's ratio to the bare loop, leaving out the first turn."""
    bare, ours = (turns.times[name][1:] for name in ("bare loop", "trainer"))
    for name, found in (("bare loop", bare), ("trainer", ours)):
        print(f"{name:10} {statistics.median(tokens / clock for clock, _ in found):10,.0f} tokens/s")
    for index, what in enumerate(("the clock", "processor time")):
        ratios = sorted(other[index] / own[index] for other, own in zip(bare, ours, strict=True))
        print(
            f"ratio by {what}: {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}; "
            "target: at least 1.0)"
        )


if __name__ == "__main__":
    sys.exit(main())
