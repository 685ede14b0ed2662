"""Saving a checkpoint against `torch.save` and a sync of the same tensors; resuming against a fresh start.

A saved checkpoint is hashed, synced, pinned on the log and committed. Resuming is timed from the start of a process to
its first update, and compared with a fresh start of the same recipe plus reading the checkpoint's files.

    python -P tools/bench/checkpoints.py [--rounds N] [--layers N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from _measure import Contender, measure

from ledger.config import dump_config
from ledger.recorder import RunRecorder
from ledger.records.events import Train
from ledger.records.layout import CHECKPOINTS, LOG
from ledger.records.parts import Position
from ledger.storage.log_reader import read_log
from tests.support.toy import TOKENS_PER_MICROBATCH, ToyLoop, ToySettings, plan_of
from tests.trainer.tiny import tiny_config, write_dataset
from trainer.checkpoint import write_tensors
from trainer.config import TrainerConfig
from trainer.state import TrainingState, build_state

ROOT = Path(__file__).resolve().parents[2]
MODEL = {"vocabulary": 2_048, "width": 256, "heads": 8, "kv_heads": 8, "hidden": 696}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each kind")
    parser.add_argument(
        "--layers", type=int, default=6, help="layers of the model, 0.8 million parameters each"
    )
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = write_dataset(Path(folder) / "data")
        config = tiny_config(
            data,
            run={"target_step": 1},
            model=MODEL | {"layers": options.layers},
            schedule={"name": "constant"},
            evaluation={"enabled": False},
            logging={"interval": 1, "evidence": False},
        )
        measure_saving(config, Path(folder), rounds=options.rounds)
        measure_resuming(config, Path(folder), rounds=options.rounds)
    return 0


def measure_saving(config: TrainerConfig, folder: Path, *, rounds: int) -> None:
    """Let recorder and torch save the same tensors in turns."""
    state = trained_state(config)
    tensors = {"model": state.model_tensors(), "optimizer": state.optimizer_tensors()}
    size = sum(value.nbytes for part in tensors.values() for value in part.values())
    print(f"saving {size / 2**20:,.0f} MiB")
    loop = ToyLoop(ToySettings(target_step=10**6, accumulation=1, evidence=False))
    with RunRecorder(folder / "saving") as recorder:
        recorder.start(plan_of(loop), capture=state.capture)
        ratio = measure(
            {
                "torch.save": Contender(lambda: save_plainly(tensors, folder / "plain.pt"), size / 2**20),
                "checkpoint": Contender(lambda: save(recorder, state), size / 2**20),
            },
            rounds=rounds,
            unit="MiB/s",
            base="torch.save",
        )["checkpoint"]
        print(f"a checkpoint takes {1 / ratio:.2f} times torch.save's time (target: at most 1.3)")
        recorder.end("stopped", reason="measured")


def trained_state(config: TrainerConfig) -> TrainingState:
    """Return a state after one update, so that the optimizer's is there."""
    state = build_state(config)
    for parameter in state.model.parameters():
        parameter.grad = torch.randn_like(parameter)
    state.optimizer.set_rates(dict.fromkeys(state.groups, 1e-3))
    state.optimizer.step()
    state.optimizer.zero_grad()
    return state


def save(recorder: RunRecorder, state: TrainingState) -> None:
    """Report one update and commit a checkpoint of it; remove the one before."""
    recorder.microbatch(
        tokens=TOKENS_PER_MICROBATCH, digest=b"\1" * 32, cursor={"train": Position(0, recorder.step)}
    )
    recorder.updated(loss=1.0, grad_norm=0.5, lr={"all": 0.01})
    with recorder.checkpoint("interval") as folder:
        write_tensors(folder, state, metadata=recorder.tensor_metadata())
    for old in sorted((recorder.run_dir / CHECKPOINTS).iterdir())[:-1]:
        shutil.rmtree(old)


def save_plainly(tensors: object, path: Path) -> None:
    """Save as torch does and bring it to the disk."""
    with path.open("wb") as file:
        torch.save(tensors, file)
        file.flush()
        os.fsync(file.fileno())


def measure_resuming(config: TrainerConfig, folder: Path, *, rounds: int) -> None:
    """Start fresh and resume in turns, each in a process of its own."""
    path = folder / "config.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    first_update(path, folder / "parent")
    files = list((folder / "parent" / CHECKPOINTS).glob("*/*"))
    fresh, resumed = [], []
    for number in range(rounds):
        begin = time.perf_counter()
        for file in files:
            file.read_bytes()
        reading = time.perf_counter() - begin
        fresh.append(first_update(path, folder / f"fresh-{number}") + reading)
        run = folder / f"resumed-{number}"
        shutil.copytree(folder / "parent", run)
        resumed.append(first_update(path, run, "--resume", "auto", "--set", "run.target_step=2"))
    ratios = sorted(after / before for after, before in zip(resumed, fresh, strict=True))
    print(
        f"\nprocess start to first update: fresh and reading {statistics.median(fresh):.2f} s, resumed ",
        end="",
    )
    print(f"{statistics.median(resumed):.2f} s: {statistics.median(ratios):.2f} times ", end="")
    print(f"({ratios[0]:.2f} to {ratios[-1]:.2f}; target: at most 1.2)")


def first_update(config: Path, run: Path, *arguments: str) -> float:
    """Train one update in a process; return the seconds from its start to the record of that update."""
    command = [sys.executable, "-P", "-m", "trainer", "train", "--config", str(config), "--run", str(run)]
    begin = datetime.now(UTC)
    subprocess.run([*command, *arguments], cwd=ROOT, check=True, capture_output=True)
    with read_log(run / LOG) as reader:
        times = [line.event.time for line in reader if isinstance(line.event, Train)]
    return (datetime.fromisoformat(times[-1]) - begin).total_seconds()


if __name__ == "__main__":
    sys.exit(main())
