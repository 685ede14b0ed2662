"""The number formats and optimizers that every claim of resuming, branching and repeating is crossed with."""

from __future__ import annotations

from typing import Any

import pytest

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"name": "fp32"},
    "bf16": {"name": "bf16"},
    "fp16": {"name": "fp16", "initial_scale": 2.0**18, "growth_interval": 3},
}
"""With fp16 the first attempts overflow, and the growth tracker is on its way wherever a run is cut."""
OPTIMIZERS: dict[str, dict[str, Any] | None] = {"adamw": None, "muon": {"learning_rate": 0.01}}
KINDS = {
    f"{number_format}, {optimizer}": {
        "precision": precision,
        "optimizer": {"learning_rate": 3e-3, "muon": muon},
        "limits": {"consecutive_skips": 40},
    }
    for number_format, precision in PRECISIONS.items()
    for optimizer, muon in OPTIMIZERS.items()
}
"""Name to the sections of a configuration."""
QUICK = "fp32, adamw"
EACH_KIND = [
    pytest.param(sections, id=name, marks=[] if name == QUICK else pytest.mark.slow)
    for name, sections in KINDS.items()
]
"""Every kind as a parameter of a test; all but one are slow."""
