"""What the machine, its software and the code are: everything outside the recipe that decides the bits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import torch

from ledger.errors import UsageError
from ledger.recorder import describe_code, describe_environment
from ledger.records.documents import Environment
from ledger.records.fields import Json
from trainer.config import TrainerConfig

__all__ = ["environment_record", "peak_memory", "prepare_machine"]

PACKAGES: Final = ("torch", "safetensors")
CODE: Final = Path(__file__).resolve().parent.parent
"""Folder of the packages `ledger` and `trainer`."""


def prepare_machine(config: TrainerConfig) -> None:
    """Set the number of threads and, where the recipe says so, allow deterministic algorithms alone.

    Raises:
        UsageError: the device is not there.
    """
    if config.machine.device != "cpu" and not torch.cuda.is_available():
        raise UsageError(
            f"machine.device is {config.machine.device}, and torch {torch.__version__} finds no such device here",
            advice="set machine.device=cpu, or install torch for the accelerator",
        )
    torch.set_num_threads(config.machine.threads)
    if config.determinism.deterministic and config.machine.device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(config.determinism.deterministic)


def environment_record(config: TrainerConfig) -> Environment:
    """Return the record of the environment, after `prepare_machine`."""
    return describe_environment(
        packages=PACKAGES,
        code=describe_code(CODE, paths=("ledger", "trainer")),
        accelerators=[torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        settings=_settings(config),
    )


def peak_memory(device: str) -> dict[str, float]:
    """Return the most bytes that tensors took on the accelerator since the process began; nothing on the CPU."""
    if device == "cpu":
        return {}
    return {"peak_accelerator_bytes": float(torch.cuda.max_memory_allocated(device))}


def _settings(config: TrainerConfig) -> dict[str, Json]:
    """Return what decides the bits beside the packages and the hardware.

    With deterministic algorithms torch refuses every operation that cannot promise its bits, so what a record states
    as deterministic is so; across other threads, processors or libraries nothing is promised.
    """
    settings: dict[str, Json] = {
        "device": config.machine.device,
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()),
    }
    if config.machine.device == "cpu":
        return settings
    return settings | {
        "cublas_workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_version": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "cuda": torch.version.cuda,
    }
