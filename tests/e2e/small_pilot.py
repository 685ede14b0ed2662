"""A pilot of seconds: the real programs on a few hundred small documents and a model of a few thousand weights."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ledger.pilot import Moment, Plan, StageOutcome, run_pilot

WORDS = "the run was kept in a ledger and every step that counted was a step that had been made by the model".split()

CONFIG = """
run: {name: small, target_step: 400, seed: 3}
data: {path: unset}
batch: {micro_batch: 2, sequence: 16, accumulation: 2}
model: {width: 16, layers: 1, heads: 2, kv_heads: 1, hidden: 32}
optimizer: {learning_rate: 1e-2}
schedule: {name: cosine, warmup_steps: 2, min_lr_ratio: 0.1}
logging: {interval: 1}
evaluation: {interval: 40, batches: 2, micro_batch: 16}
checkpoint: {policy: interval, interval: 100}
machine: {device: cpu, threads: 1}
pilot:
  name: small
  prepare: {configs: [prepare.yaml]}
  overfit: {recipe: {run: {target_step: 20}}, gates: {loss_left: {max: 0.9}}}
  acceptance: {recipe: {run: {target_step: 8}, evaluation: {interval: 4}, checkpoint: {interval: 4}}}
  stability:
    recipe: {run: {target_step: 30}, logging: {interval: 1}}
    gates: {throughput_ratio: null, data_wait_share: null, checkpoint_share: null, spike_share: null}
  resume: {recipe: {run: {target_step: 60}, checkpoint: {interval: 4}}, kill_after_step: 6}
  validate: {gates: {leaked_share: null}}
"""
"""Texts of twenty words repeat, and a machine under load has any throughput; the rest is asked as of any run."""


def write_small_pilot(folder: Path) -> Path:
    """Write corpus and configurations into `folder`; return the configuration."""
    choose = random.Random(0)
    texts = [" ".join(choose.choices(WORDS, k=choose.randint(5, 40))) for _ in range(300)]
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    prepare = (
        f"source: {{kind: jsonl, files: [{corpus}]}}\n"
        "tokenizer: {kind: train, vocabulary: 300}\n"
        "split: {validation_fraction: 0.1}\n"
    )
    (folder / "prepare.yaml").write_text(prepare, encoding="utf-8")
    (folder / "run.yaml").write_text(CONFIG, encoding="utf-8")
    return folder / "run.yaml"


def rehearse(
    folder: Path, *overrides: str, said: list[Moment] | None = None, **options: Any
) -> list[StageOutcome]:
    """Run the pilot of a folder in this process; its stages are processes all the same."""
    report = (lambda _: None) if said is None else said.append
    plan = Plan([folder / "run.yaml"], overrides, root=folder / "out", report=report)
    return list(run_pilot(plan, **options))


def command(folder: Path, *arguments: str | Path) -> Sequence[str]:
    """Return the command line that rehearses the pilot of a folder."""
    words = ["pilot", folder / "run.yaml", "--output", folder / "out", *arguments]
    return [sys.executable, "-P", "-m", "ledger", *map(str, words)]


def ledger(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run `ledger …` as a process and return what it said."""
    words = [sys.executable, "-P", "-m", "ledger", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
