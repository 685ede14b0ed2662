"""What the tests of the recorder share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return the path of a run that does not exist yet."""
    return tmp_path / "run"
