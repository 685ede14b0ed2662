"""What the tests of the recorder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledger.records.layout import LOG
from tests.support.audited import audit


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """Return the path of a run that does not exist yet; whatever the test makes of it must stand up to the audit."""
    yield tmp_path / "run"
    if (tmp_path / "run" / LOG).exists():
        audit(tmp_path / "run")


@pytest.fixture
def unaudited_dir(tmp_path: Path) -> Path:
    """Return the path of a run that the test will damage, or let say what no recipe does."""
    return tmp_path / "run"
