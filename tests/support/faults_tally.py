"""The account of the fault suite: writing command × how it was broken: tried, lost, escaped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final


@dataclass
class Row:
    """What was tried with one command in one way."""

    operations: int = 0
    tried: int = 0
    lost: int = 0
    escaped: int = 0


class LostError(AssertionError):
    """Something that was acknowledged is not there."""


@dataclass
class Tally:
    """All rows, by command and mode."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def add(self, command: str, mode: str, *, problems: list[str], operations: int = 0) -> None:
        """Count one attempt with what went wrong in it; a problem that begins with `lost:` is a loss."""
        row = self.rows.setdefault((command, mode), Row())
        kinds = Counter(problem.startswith("lost:") for problem in problems)
        row.operations = max(row.operations, operations)
        row.tried += 1
        row.lost += bool(kinds[True])
        row.escaped += bool(kinds[False])

    def lines(self) -> list[str]:
        """Return the table as text."""
        width = max((len(command) for command, _ in self.rows), default=0)
        head = f"{'writing command':<{width}}  {'mode':<22} {'operations':>10} {'tried':>7} {'lost':>5} {'escaped':>7}"
        lines = [head]
        for (command, mode), row in sorted(self.rows.items()):
            numbers = f"{row.operations or '':>10} {row.tried:>7} {row.lost:>5} {row.escaped:>7}"
            lines.append(f"{command:<{width}}  {mode:<22} {numbers}")
        total = [
            sum(getattr(row, name) for row in self.rows.values()) for name in ("tried", "lost", "escaped")
        ]
        lines.append(f"{'in all':<{width}}  {'':<22} {'':>10} {total[0]:>7} {total[1]:>5} {total[2]:>7}")
        return lines


TALLY: Final = Tally()
"""What this process of the test suite tried; printed at its end."""
