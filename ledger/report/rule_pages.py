"""The rules as pages of documentation."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules import EXPLAINED

__all__ = ["rule_pages"]

GROUPS: Final = {
    "LG1": "the log's form",
    "LG2": "counters",
    "LG3": "sessions and lineage",
    "LG4": "checkpoints",
    "LG5": "data",
    "LG6": "recipe",
    "LG7": "completion",
    "LG8": "resume equivalence",
    "LG9": "pilots and gates",
}

_INTRODUCTION: Final = """# Rules

What the audit checks. `ledger explain LG306` prints a page. A finding is an `error` (a contradiction), `missing`
(evidence that a claim needs is not there), a `warning` or a `hint`. The verdict is failed if there is an error, else
incomplete if anything is missing or the run is live, else passed.
"""


def rule_pages() -> dict[str, str]:
    """Return file name to text: one page a rule, as `ledger explain` prints it, and an index."""
    return {"index.md": _index()} | {f"{rule.id}.md": rule.page for rule in EXPLAINED.values()}


def _index() -> str:
    parts = [_INTRODUCTION]
    for prefix, title in GROUPS.items():
        rows = [
            f"| [{rule.id}]({rule.id}.md) | {rule.title} | {', '.join(rule.severities)} |"
            for rule in EXPLAINED.values()
            if rule.id.startswith(prefix)
        ]
        parts.append(
            f"\n## {prefix}: {title}\n\n| rule | holds | else |\n|---|---|---|\n" + "\n".join(rows) + "\n"
        )
    return "".join(parts)
