"""Real training in child processes of a server that has loaded torch once."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from ledger.config import dump_config
from tests.trainer.tiny import tiny_config
from trainer import (
    cli,
    session,  # noqa: F401 - loaded here so that no child has to
)

__all__ = ["train", "write_config"]

# The first step of an optimizer loads this, which takes seconds that no child has to spend.
importlib.import_module("torch._dynamo")


def write_config(path: Path, data: Path, /, **sections: dict[str, Any]) -> Path:
    """Write the configuration of a tiny run as a file."""
    path.write_text(dump_config(tiny_config(data, **sections)))
    return path


def train(config: str, run: str, *, resume: bool = True, output: str | None = None) -> int:
    """Train from the command line, a new run or the one that is there; returns the exit code."""
    with Path(output or "/dev/null").open("a") as log:
        sys.stdout = sys.stderr = log
        arguments = ["train", "--config", config, "--run", run, *(["--resume", "auto"] if resume else [])]
        try:
            cli.main(arguments)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
    return 0
