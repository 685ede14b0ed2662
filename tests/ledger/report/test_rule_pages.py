from __future__ import annotations

from pathlib import Path

from ledger.audit.rules import EXPLAINED
from ledger.report.rule_pages import rule_pages

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference" / "rules"


def test_the_pages_are_what_the_registry_says():
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    assert found == rule_pages(), "run tools/rule_pages.py"


def test_the_index_names_every_rule():
    index = rule_pages()["index.md"]
    assert all(f"[{rule}]({rule}.md)" in index for rule in EXPLAINED)
