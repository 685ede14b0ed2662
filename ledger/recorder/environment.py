"""What the machine, its software and the code are: everything outside the recipe that decides the bits."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from ledger.records.documents import Environment
from ledger.records.fields import Json
from ledger.storage.canonical import sha256_hex

__all__ = ["describe_code", "describe_environment"]

OURS: Final = ("pilot-ledger", "numpy", "msgspec", "pydantic", "rfc8785")
"""Packages that every record depends on."""
DECISIVE_PREFIXES: Final = ("ATEN_", "ONEDNN_", "DNNL_", "MKL_", "OMP_", "KMP_", "CUBLAS_", "TORCH_")
"""Environment variables that can change the bits of a computation."""


def describe_environment(
    *,
    packages: Iterable[str] = (),
    code: Mapping[str, Json] | None = None,
    accelerators: Iterable[str] = (),
    settings: Mapping[str, Json] | None = None,
) -> Environment:
    """Return the record of the environment. Nothing in it belongs to this process alone.

    Args:
        packages: distributions whose versions matter, beside the ledger's own.
        code: what `describe_code` says of the training code; unknown when omitted.
        accelerators: names of the devices that compute.
        settings: switches that decide the bits, such as thread counts.
    """
    return Environment(
        packages={name: _version(name) for name in (*OURS, *packages)},
        python=f"{platform.python_implementation()} {platform.python_version()}",
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        hardware=_hardware(list(accelerators)),
        settings={**(settings or {}), "variables": _variables()},
        code=dict(code) if code is not None else _unknown_code(),
    )


def describe_code(folder: Path, *, paths: Iterable[str] = (".",)) -> dict[str, Json]:
    """Return commit, dirty flag and digest of the difference to the commit of the git checkout at `folder`.

    Only `paths` below it count. All three are null where the folder is no checkout or git is absent.
    """
    below = ["--", *paths]
    if not _git(folder, "ls-files", *below):
        return _unknown_code()
    commit = _git(folder, "rev-parse", "HEAD")
    difference = _git(folder, "diff", "--no-ext-diff", "--no-color", "--binary", "HEAD", *below)
    untracked = _git(folder, "ls-files", "--others", "--exclude-standard", *below)
    if commit is None or difference is None or untracked is None:
        return _unknown_code()
    return {
        "commit": commit.decode().strip(),
        "dirty": bool(difference or untracked),
        "diff_sha256": sha256_hex(difference) if difference else None,
    }


def _unknown_code() -> dict[str, Json]:
    return {"commit": None, "dirty": None, "diff_sha256": None}


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Return what git prints, or None where there is no git or it refuses."""
    program = shutil.which("git")
    if program is None:
        return None
    done = subprocess.run([program, "-C", str(folder), *arguments], capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed as a package"


def _hardware(accelerators: list[str]) -> dict[str, Json]:
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


def _variables() -> dict[str, Json]:
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(DECISIVE_PREFIXES)}
