"""What `ledger diff` prints: two runs side by side."""

from __future__ import annotations

from collections.abc import Iterator

from ledger.audit import Comparison
from ledger.report.harmless import SHORT, clipped
from ledger.report.lines import Line, blank, heading, number, table

__all__ = ["comparison_lines"]


def comparison_lines(comparison: Comparison) -> Iterator[Line]:
    """Yield the lines of a report on two runs, what defines the experiment first."""
    first, second = comparison.runs
    yield heading(f"{first} against {second}")
    same = "the same experiment" if comparison.is_same_identity else "different experiments"
    yield Line(f"identity: {same}", "" if comparison.is_same_identity else "bold yellow")
    for leaf_class in ("identity", "operational", "volatile"):
        leaves = [leaf for leaf in comparison.recipe if leaf.leaf_class == leaf_class]
        if leaves:
            yield blank()
            yield heading(f"recipe, {leaf_class}")
            yield from table([[leaf.field, _shown(leaf.first), "->", _shown(leaf.second)] for leaf in leaves])
    for name, pairs in (("data", comparison.data), ("runs", comparison.facts)):
        if pairs:
            yield blank()
            yield heading(name)
            yield from table([[pair.name, _shown(pair.first), "->", _shown(pair.second)] for pair in pairs])
    if comparison.environment:
        yield blank()
        yield heading("environment")
        yield from (Line(f"  {clipped(change)}") for change in comparison.environment)
    if comparison.courses:
        yield blank()
        yield heading("course")
        yield from table([[name, how] for name, how in comparison.courses.items()])
    yield blank()
    yield heading("results")
    yield from table(
        [
            [pair.name, _result(pair.first), _result(pair.second), "" if pair.first == pair.second else "*"]
            for pair in comparison.results
        ]
    )
    for what, why in comparison.not_compared.items():
        yield Line(f"not compared: {what}: {why}", "bold yellow")


def _shown(value: object) -> str:
    """Return a value of a record in a row, shortened."""
    return clipped(repr(value), longest=SHORT)


def _result(value: object) -> str:
    """Return a result in a row; of a digest its beginning."""
    text = number(value)
    return f"{text[:16]}…" if isinstance(value, str) and len(value) == 64 else text
