"""What the machine, its software and the code are: everything outside the recipe that decides the bits."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import torch

from ledger.records.documents import Environment
from ledger.records.fields import Json
from ledger.storage.canonical import sha256_hex
from trainer.config import TrainerConfig

__all__ = ["describe_environment", "prepare_machine"]

PACKAGES: Final = ("pilot-ledger", "torch", "numpy", "safetensors", "msgspec", "pydantic", "rfc8785")
DECISIVE_PREFIXES: Final = ("ATEN_", "ONEDNN_", "DNNL_", "MKL_", "OMP_", "KMP_", "CUBLAS_", "TORCH_")
CODE: Final = Path(__file__).resolve().parent.parent
"""Folder of the packages `ledger` and `trainer`."""


def prepare_machine(config: TrainerConfig) -> None:
    """Set the number of threads and, where the recipe says so, allow deterministic algorithms alone."""
    torch.set_num_threads(config.machine.threads)
    if config.determinism.deterministic and config.machine.device.startswith("cuda"):
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
    torch.use_deterministic_algorithms(config.determinism.deterministic)


def describe_environment(config: TrainerConfig) -> Environment:
    """Return the record of the environment, after `prepare_machine`. Nothing in it belongs to this process alone."""
    return Environment(
        packages=_package_versions(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        hardware=_hardware(),
        settings=_settings(config),
        code=describe_code(CODE),
    )


def describe_code(folder: Path) -> dict[str, Json]:
    """Return commit, dirty flag and digest of the difference to the commit; null where `folder` is no git checkout."""
    unknown: dict[str, Json] = {"commit": None, "dirty": None, "diff_sha256": None}
    if _git(folder, "ls-files", "--error-unmatch", "trainer/environment.py") is None:
        return unknown
    commit = _git(folder, "rev-parse", "HEAD")
    difference = _git(
        folder, "diff", "--no-ext-diff", "--no-color", "--binary", "HEAD", "--", "ledger", "trainer"
    )
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard", "--", "ledger", "trainer")
    if commit is None or difference is None or untracked is None:
        return unknown
    return {
        "commit": commit.decode().strip(),
        "dirty": bool(difference or untracked),
        "diff_sha256": sha256_hex(difference) if difference else None,
    }


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Return what git prints, or None where there is no git or it refuses."""
    program = shutil.which("git")
    if program is None:
        return None
    done = subprocess.run([program, "-C", str(folder), *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _package_versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed as a package"
    return found


def _hardware() -> dict[str, Json]:
    accelerators = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "accelerators": accelerators,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor()


def _settings(config: TrainerConfig) -> dict[str, Json]:
    variables = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(DECISIVE_PREFIXES)
    }
    return {
        "device": config.machine.device,
        "threads": torch.get_num_threads(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "mkldnn": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()),
        "variables": variables,
    }
