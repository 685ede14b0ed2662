"""Builds the wheel, installs it into an empty environment and runs the auditor there, without torch and pyarrow.

An editable install hides what a package forgets; this is what a user gets.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = (["--help"], ["schema"], ["explain", "LG306"])
NOT_IN_THE_BASE = ("torch", "pyarrow", "tokenizers", "safetensors", "cryptography")


def main() -> int:
    """Return 0 if every command of the built auditor succeeds; print what failed otherwise."""
    with tempfile.TemporaryDirectory(prefix="pilot-ledger-wheel-") as folder:
        wheel = _build_wheel(Path(folder))
        binaries = _install(wheel, Path(folder) / "environment")
        _check_absent(binaries / "python")
        for arguments in COMMANDS:
            _run([str(binaries / "ledger"), *arguments], cwd=folder)
            print(f"    ledger {' '.join(arguments)}: ok")
    return 0


def _build_wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    _run(command, cwd=folder)
    return next(folder.glob("*.whl"))


def _install(wheel: Path, environment: Path) -> Path:
    """Create the environment and return its folder of programs."""
    venv.create(environment, with_pip=True)
    binaries = environment / "bin"
    pip = [str(binaries / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    _run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], cwd=environment)
    return binaries


def _check_absent(python: Path) -> None:
    code = (
        "import importlib.util, sys; "
        f"sys.exit(', '.join(n for n in {NOT_IN_THE_BASE!r} if importlib.util.find_spec(n)) or 0)"
    )
    _run([str(python), "-P", "-c", code], cwd=python.parent)


def _run(command: list[str], *, cwd: str | Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
