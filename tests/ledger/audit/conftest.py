from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.ledger.audit.healthy import HEALTHY


@pytest.fixture(scope="session")
def healthy_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return an honest run by its name; it is made once and must not be changed."""
    root = tmp_path_factory.mktemp("healthy")

    def get(name: str) -> Path:
        if not (root / name).exists():
            HEALTHY[name](root / name)
        return root / name

    return get


@pytest.fixture
def copy_of(healthy_run: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """Return a copy of an honest run that a test may break."""

    def copy(name: str) -> Path:
        source = healthy_run(name)
        shutil.copytree(source, tmp_path / name)
        data = source.with_name(f"{name}-data")
        if data.exists():
            shutil.copytree(data, tmp_path / data.name)
        return tmp_path / name

    return copy
