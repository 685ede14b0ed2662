"""What a prepared dataset holds, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ledger.dataset.inventory import DatasetInventory, SplitReport
from ledger.report.lines import Line, blank, heading, number, table

__all__ = ["Coverage", "inventory_lines"]

Coverage = Mapping[str, Mapping[str, int | None]]
"""Source to positions processed, distinct tokens, epoch tokens and epochs, as a run's account states them."""

_BAR: Final = 30


def inventory_lines(inventory: DatasetInventory, *, title: str, coverage: Coverage | None) -> Iterator[Line]:
    """Yield the lines of an inventory, and of what a run read of it if there is one."""
    yield heading(title)
    left_out = ", ".join(f"{number(count)} {reason}" for reason, count in inventory.left_out.items() if count)
    facts = [
        ("metadata_sha256", inventory.metadata_sha256),
        ("source", inventory.source),
        ("tokenizer", f"{inventory.tokenizer}, {number(inventory.vocabulary)} entries, {inventory.dtype}"),
        ("left out", left_out or "nothing"),
    ]
    if inventory.shared:
        facts.append(
            ("in both splits", f"{number(inventory.shared)} training documents: validation is leaked")
        )
    yield from table(facts)
    for split in inventory.splits:
        yield blank()
        yield from _split_lines(split)
    if coverage is not None:
        yield blank()
        yield from _coverage_lines(coverage)


def _split_lines(split: SplitReport) -> Iterator[Line]:
    yield heading(split.name)
    quantiles = ", ".join(f"{share} {number(tokens)}" for share, tokens in split.quantiles.items())
    duplicates = "not counted"
    if split.duplicates is not None:
        share = split.duplicates / split.documents
        duplicates = f"{number(split.duplicates)} documents ({share:.2%}) repeat an earlier one"
    yield from table(
        [
            ("documents", number(split.documents)),
            ("tokens", number(split.tokens)),
            ("text", f"{number(split.text_bytes)} bytes, {split.bytes_per_token:.3f} a token"),
            ("stored", f"{number(split.stored_bytes)} bytes in {number(split.shards)} shards"),
            ("duplicates", duplicates),
            (
                "tokens a document",
                f"{number(split.shortest)} to {number(split.longest)}, mean {split.mean:.1f}",
            ),
            ("", quantiles),
        ]
    )
    most = max(bucket.documents for bucket in split.histogram)
    rows = [("from", "below", "documents", "tokens", "")]
    for bucket in split.histogram:
        bar = "#" * -(-bucket.documents * _BAR // most)
        counts = (bucket.at_least, bucket.below, bucket.documents, bucket.tokens)
        first, second, third, fourth = map(number, counts)
        rows.append((first, second, third, fourth, bar))
    yield from table(rows, indent="    ")


def _coverage_lines(coverage: Coverage) -> Iterator[Line]:
    yield heading("read by the run")
    for source, found in coverage.items():
        distinct, whole = found.get("distinct_tokens"), found.get("epoch_tokens")
        share = f" of {number(whole)} ({distinct / whole:.1%})" if distinct is not None and whole else ""
        yield Line(
            f"  {source}: {number(distinct)}{share} tokens distinct, "
            f"{number(found.get('positions_processed'))} positions processed, epoch {found.get('epochs')}"
        )
    if not coverage:
        yield Line("  nothing that its records state")
