"""Small corpora and configurations for the tests of preparation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data_prep.config import PreparationConfig
from ledger.config import load_config

EOS = "<|endoftext|>"


def texts(count: int) -> list[str]:
    """Return different texts of different lengths, with what tends to go wrong among them."""
    odd = ["", f"a literal {EOS} stays text", "tabs\tand\r\nline ends", "naïve – 日本語 👩‍👩‍👧", "  spaces  "]
    plain = [
        f"Document {index}: " + "lorem ipsum dolor " * (index % 9) + str(index**3) for index in range(count)
    ]
    return [*odd, *plain]


def write_jsonl(path: Path, documents: list[str], *, column: str = "text") -> Path:
    """Write one object a line."""
    path.write_text("".join(json.dumps({"id": n, column: text}) + "\n" for n, text in enumerate(documents)))
    return path


def configure(path: Path, **settings: Any) -> PreparationConfig:
    """Return a configuration that reads a JSON Lines file and trains a small tokenizer."""
    return load_config([], overrides(path, **settings), model=PreparationConfig)


def overrides(path: Path, **settings: Any) -> list[str]:
    """Return the `--set` values of `configure`; `a__b=1` sets `a.b`."""
    values: dict[str, Any] = {
        "source.kind": "jsonl",
        "source.files": [str(path)],
        "tokenizer.kind": "train",
        "tokenizer.vocabulary": 300,
        "split.validation_fraction": 0.2,
        "shuffle.buffer": 20,
        "shard_tokens": 500,
    }
    values |= {name.replace("__", "."): value for name, value in settings.items()}
    return [
        f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in values.items()
    ]
