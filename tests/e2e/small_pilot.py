"""A pilot of seconds: the real programs on a few hundred small documents and a model of a few thousand weights."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

WORDS = "the run was kept in a ledger and every step that counted was a step that had been made by the model".split()

BASE = """
run: {name: small, target_step: 8, seed: 3}
data: {path: unset}
batch: {micro_batch: 2, sequence: 16, accumulation: 1}
model: {width: 16, layers: 1, heads: 2, kv_heads: 1, hidden: 32}
optimizer: {learning_rate: 1e-2}
schedule: {name: constant, warmup_steps: 2}
logging: {interval: 1}
evaluation: {interval: 4, batches: 2, micro_batch: 2}
checkpoint: {policy: interval, interval: 4}
machine: {device: cpu, threads: 1}
"""
OVERFIT = "run: {purpose: overfit, target_step: 60}\ndata: {repeat: 1}\nevaluation: {enabled: false}\n"
ACCEPTANCE = "run: {purpose: acceptance}\ndata: {repeat: 2}\nbatch: {accumulation: 2}\n"
STABILITY = "run: {purpose: stability, target_step: 60}\n"
RESUME = "run: {purpose: resume, target_step: 60}\nbatch: {accumulation: 3}\nlogging: {evidence: true}\n"
PILOT = """
name: small
prepare: {configs: [prepare.yaml]}
overfit: {configs: [base.yaml, overfit.yaml], max_final_loss: 4.0}
acceptance: {configs: [base.yaml, acceptance.yaml]}
stability: {configs: [base.yaml, stability.yaml], min_loss_drop: 0.2}
resume: {configs: [base.yaml, resume.yaml], kill_after_step: 6}
"""


def write_small_pilot(folder: Path) -> Path:
    """Write corpus and configurations into `folder`; return the pilot's configuration."""
    choose = random.Random(0)
    texts = [" ".join(choose.choices(WORDS, k=choose.randint(5, 40))) for _ in range(300)]
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    prepare = (
        f"source: {{kind: jsonl, files: [{corpus}]}}\n"
        "tokenizer: {kind: train, vocabulary: 300}\n"
        "split: {validation_fraction: 0.1}\n"
    )
    files = {
        "prepare.yaml": prepare,
        "base.yaml": BASE,
        "overfit.yaml": OVERFIT,
        "acceptance.yaml": ACCEPTANCE,
        "stability.yaml": STABILITY,
        "resume.yaml": RESUME,
        "pilot.yaml": PILOT,
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "pilot.yaml"


def ledger(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `ledger …` as a process and return what it said."""
    command = [sys.executable, "-P", "-m", "ledger", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
