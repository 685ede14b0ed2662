"""What a rule is: an id, a title, how bad it is when it does not hold, and its page."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.records.documents import Severity

__all__ = ["Rule"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule of the audit and the text that explains it."""

    id: str
    title: str
    """What holds when the rule is met, in a few words."""
    severities: tuple[Severity, ...]
    """What a finding of this rule can be, the gravest first."""
    meaning: str
    """What exactly is compared with what."""
    causes: str
    """How a finding comes about in practice."""
    advice: str
    """What to do about one."""

    @property
    def page(self) -> str:
        """The rule's page in Markdown."""
        return (
            f"# {self.id}: {self.title}\n\nSeverity: {' or '.join(self.severities)}\n\n## What it "
            f"means\n\n{self.meaning}\n\n## How it comes about\n\n{self.causes}\n\n## What to "
            f"do\n\n{self.advice}\n"
        )
