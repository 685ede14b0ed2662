"""Collecting what rules find: bounded in memory, exact in number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ledger.audit.rules import RULES
from ledger.records.documents import Finding, Severity
from ledger.records.fields import Json
from ledger.records.waivers import Waiver

__all__ = ["SEVERITIES", "Findings"]

SEVERITIES: Final[tuple[Severity, ...]] = ("error", "missing", "warning", "hint")
"""The gravest first."""

KEPT_PER_RULE: Final = 100
"""Of one rule and severity, so that no flood of hints hides an error."""
KEPT: Final = 1_000
"""In all; where there are more, each rule gives up its last ones first."""


class Findings:
    """Takes findings from all rules, keeps the first of each rule and severity and counts them all.

    What one of the waivers in force names is kept with it and counts apart.
    """

    def __init__(
        self, *, waivers: Sequence[Waiver] = (), limit: int = KEPT, limit_per_rule: int = KEPT_PER_RULE
    ) -> None:
        self._waivers = {(waiver.rule, waiver.where): waiver for waiver in waivers}
        self._used: set[tuple[str, str]] = set()
        self.waived = 0
        """Exact number of findings that a waiver covers."""
        self._limit = limit
        self._limit_per_rule = limit_per_rule
        self._kept: dict[tuple[Severity, str], list[Finding]] = {}
        self._per_rule: Counter[str] = Counter()
        self._unwaived: Counter[tuple[str, Severity]] = Counter()
        self._per_severity: Counter[Severity] = Counter()
        self.not_checked: dict[str, str] = {}
        """Rule, or another thing a reader might take for checked, to the reason why it was not."""
        self.not_applicable: dict[str, str] = {}
        """Rule to the reason why it does not apply to this run."""

    def add(
        self,
        rule: str,
        message: str,
        *,
        where: str,
        severity: Severity | None = None,
        evidence: dict[str, Json] | None = None,
    ) -> None:
        """Record one finding; without a severity it is the gravest that the rule has."""
        severity = severity or RULES[rule].severities[0]
        waiver = self._waivers.get((rule, _storable(where))) if self._waivers else None
        if waiver is None:
            self._per_severity[severity] += 1
            self._unwaived[rule, severity] += 1
        else:
            self.waived += 1
            self._used.add((rule, waiver.where))
        self._per_rule[rule] += 1
        kept = self._kept.setdefault((severity, rule), [])
        if len(kept) >= self._limit_per_rule:
            return
        kept.append(
            Finding(
                rule=rule,
                severity=severity,
                where=_storable(where),
                message=_storable(message),
                evidence=evidence or {},
                waiver=waiver,
            )
        )

    def skip(self, rule: str, reason: str) -> None:
        """Note that a rule could not be checked, wholly or in part; the first reason stands."""
        self.not_checked.setdefault(_storable(rule), _storable(reason))

    def exempt(self, rule: str, reason: str) -> None:
        """Note that a rule does not apply to this run."""
        self.not_applicable.setdefault(rule, _storable(reason))

    def has(self, rule: str) -> bool:
        """Tell whether a rule has found anything."""
        return self._per_rule[rule] > 0

    def count(self, severity: Severity) -> int:
        """Return the exact number of findings of a severity."""
        return self._per_severity[severity]

    @property
    def counts(self) -> dict[Severity, int]:
        """The exact number of findings of every severity."""
        return {severity: self._per_severity[severity] for severity in SEVERITIES}

    @property
    def rule_counts(self) -> dict[str, dict[Severity, int]]:
        """The exact number of findings of every rule by severity, waived ones apart."""
        found: dict[str, dict[Severity, int]] = {}
        for (rule, severity), count in sorted(self._unwaived.items()):
            found.setdefault(rule, {})[severity] = count
        return found

    @property
    def unused_waivers(self) -> list[Waiver]:
        """The waivers in force that no finding needs."""
        return [waiver for place, waiver in self._waivers.items() if place not in self._used]

    @property
    def kept(self) -> list[Finding]:
        """The findings that were kept, the gravest first, in the order of the rules.

        Every rule and severity that found something is among them, however many there are.
        """
        groups = [
            self._kept[key] for key in sorted(self._kept, key=lambda key: (SEVERITIES.index(key[0]), key[1]))
        ]
        share = self._limit_per_rule
        while share > 1 and sum(min(len(group), share) for group in groups) > self._limit:
            share -= 1
        return [found for group in groups for found in group[:share]]


def _storable(text: str) -> str:
    """Return text without the lone surrogates that stand for undecodable bytes in a path."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
