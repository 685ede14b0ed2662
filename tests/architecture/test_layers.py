"""The rules on imports that the linter cannot see because they hold at run time, and that it is in force at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


def loaded_after_import(module: str, cwd: Path) -> set[str]:
    done = run_python(
        "-c", f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})", cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def modules_of(package: str) -> list[str]:
    files = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]


def test_imports_follow_the_layers():
    done = run_python(
        "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", cwd=ROOT
    )
    assert done.returncode == 0, done.stdout


def test_auditor_loads_nothing_but_the_base_installation(tmp_path: Path):
    loaded = loaded_after_import(", ".join(modules_of("ledger")), tmp_path)
    assert not loaded & {"torch", "pyarrow", "safetensors", "tokenizers", "trainer", "data_prep"}


@pytest.mark.parametrize("module", ["trainer.config", "trainer.recipe", "trainer.arithmetic", "trainer.cli"])
def test_a_training_configuration_is_read_without_torch(module: str, tmp_path: Path):
    assert "torch" not in loaded_after_import(module, tmp_path)


def test_folders_that_are_no_packages_are_not_importable(tmp_path: Path):
    done = run_python(
        "-c", "import importlib.util as u; print(u.find_spec('tests'), u.find_spec('tools'))", cwd=tmp_path
    )
    assert done.stdout.split() == ["None", "None"]
