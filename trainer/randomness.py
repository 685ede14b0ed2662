"""Every random generator of the process: seeding, capture as JSON, restoring.

The trainer draws from them only to initialise the weights; they are part of the training state all the same, because
a model or a loader that draws must find them as it left them.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ledger.records.fields import Json
from ledger.storage.canonical import digest_of

__all__ = ["capture_randomness", "randomness_sha256", "restore_randomness", "seed_everything"]


def seed_everything(seed: int) -> None:
    """Set every generator (Python, NumPy, torch on all devices) to the run's seed."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the global generator is what others draw from)
    torch.manual_seed(seed)


def capture_randomness() -> list[dict[str, Json]]:
    """Return the states of every generator as JSON, one entry for each rank; large states in hexadecimal digits."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return [
        {
            "python": _capture_python(),
            "numpy": _capture_numpy(),
            "torch": _hex_of(torch.get_rng_state()),
            "cuda": [_hex_of(state) for state in devices],
        }
    ]


def restore_randomness(states: Json) -> None:
    """Put every generator into the state that `capture_randomness` returned."""
    (state,) = states
    python, numpy_state = state["python"], state["numpy"]
    words = tuple(np.frombuffer(bytes.fromhex(python["words"]), dtype="<u4").tolist())
    random.setstate((python["version"], words, python["gauss"]))
    key = np.frombuffer(bytes.fromhex(numpy_state["key"]), dtype="<u4")
    np.random.set_state(  # noqa: NPY002 (see seed_everything)
        ("MT19937", key, numpy_state["position"], numpy_state["has_gauss"], numpy_state["gauss"])
    )
    torch.set_rng_state(_tensor_of(state["torch"]))
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([_tensor_of(digits) for digits in state["cuda"]])


def randomness_sha256() -> str:
    """Return the digest of the state of every generator."""
    return digest_of(capture_randomness())


def _capture_python() -> dict[str, Json]:
    version, words, gauss = random.getstate()
    return {"version": version, "words": np.array(words, dtype="<u4").tobytes().hex(), "gauss": gauss}


def _capture_numpy() -> dict[str, Json]:
    state: dict[str, Any] = np.random.get_state(legacy=False)  # noqa: NPY002
    inner = state["state"]
    return {
        "key": np.asarray(inner["key"], dtype="<u4").tobytes().hex(),
        "position": int(inner["pos"]),
        "has_gauss": int(state["has_gauss"]),
        "gauss": float(state["gauss"]),
    }


def _hex_of(state: Tensor) -> str:
    return state.numpy().tobytes().hex()


def _tensor_of(digits: str) -> Tensor:
    return torch.frombuffer(bytearray.fromhex(digits), dtype=torch.uint8)
