"""Every promise about crashes and faults names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "promises.md"
NAMED = re.compile(r"^- `(tests/[\w/]+\.py)::([\w:]+)`$", re.MULTILINE)


def names_in(path: Path) -> set[str]:
    """Return what a test file defines: functions, classes and their methods, names that are assigned."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
        if isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def test_every_test_that_is_named_exists():
    named = NAMED.findall(PAGE.read_text(encoding="utf-8"))
    assert len(named) > 30
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not (ROOT / file).exists() or name not in names_in(ROOT / file)
    ]
    assert missing == []


def test_every_promise_names_a_test():
    _, *promises = PAGE.read_text(encoding="utf-8").split("\n## ")
    assert len(promises) == 8
    assert [promise.splitlines()[0] for promise in promises if not NAMED.search(promise)] == []


def test_every_item_of_a_list_is_read_as_a_test():
    items = re.findall(r"^- .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [item for item in items if not NAMED.fullmatch(item)] == []


def test_the_readme_states_each_promise_with_a_test_that_exists():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("## What it promises")[1].split("\n## ")[0]
    files = re.findall(r"`(tests/[\w/]+\.py)`", section)
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert section.count("\n|") == 2 + 8
