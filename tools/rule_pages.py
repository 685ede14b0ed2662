"""Writes the pages of docs/reference/rules from the registry of rules; `--check` only tells whether they agree."""

from __future__ import annotations

import sys
from pathlib import Path

from ledger.report.rule_pages import rule_pages

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference" / "rules"


def main() -> int:
    """Return 0 if the pages agree with the registry, or were made to."""
    pages = rule_pages()
    found = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    if found == pages:
        return 0
    if "--check" in sys.argv[1:]:
        differing = sorted(name for name in found.keys() | pages.keys() if found.get(name) != pages.get(name))
        print(f"not as the registry says: {', '.join(differing)}; run tools/rule_pages.py", file=sys.stderr)
        return 1
    for name in found.keys() - pages.keys():
        (FOLDER / name).unlink()
    for name, text in pages.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
