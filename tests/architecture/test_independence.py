"""What checks the ledger from outside shares no code with it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize("name", ["model.py", "replay.py"])
def test_an_independent_model_imports_the_standard_library_alone(name: str):
    imported = set()
    for node in ast.walk(ast.parse((SUPPORT / name).read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add((node.module or "").partition(".")[0])
    assert imported <= sys.stdlib_module_names
    assert imported
