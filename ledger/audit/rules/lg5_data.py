"""LG5: the data."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["DATA_RULES"]

DATA_RULES: Final = (
    Rule(
        id="LG501",
        title="all sessions read the same dataset",
        severities=("error", "missing"),
        meaning="The identities (metadata_sha256) that each session names are those the run started with, "
        "and the dataset at hand has that identity; another one there is missing evidence, because nothing "
        "can be checked against it.",
        causes="The corpus was prepared again under the same path, or another path was given on resume.",
        advice="Give the original dataset with --data, or restore it.",
    ),
    Rule(
        id="LG502",
        title="the dataset's manifest and files agree",
        severities=("error",),
        meaning="The totals of metadata.json are the sums of its shards, and each shard exists with the "
        "type, shape and size that the manifest states.",
        causes="A shard is missing, cut or replaced; the manifest was edited.",
        advice="Restore the named file or prepare the dataset again into a new folder.",
    ),
    Rule(
        id="LG503",
        title="every shard's bytes match their digest",
        severities=("error", "warning"),
        meaning="With --rehash each file's SHA-256 equals the manifest's. Without it the report lists the "
        "shards that were rehashed while training, and when. Two shards with the same bytes are a warning.",
        causes="Bytes damaged on disk or in transfer.",
        advice="Restore the named shard. What was trained before the damage cannot be told from the digest "
        "alone.",
    ),
    Rule(
        id="LG505",
        title="positions processed follow from the cursor",
        severities=("error",),
        meaning="On the current branch epochs × usable tokens + offset, over all sources, equals the "
        "microbatches processed × tokens per microbatch. Distinct tokens and coverage are reported.",
        causes="The cursor was restored to another place than the counters, or counts prefetched batches.",
        advice="Compare the last cursor with the counters of the same line.",
    ),
    Rule(
        id="LG506",
        title="the batches logged are the data there is",
        severities=("error",),
        meaning="Microbatch digests recomputed from the shards at the cursor equal the log's: a spread "
        "sample by default, all of them with --rehash.",
        causes="The data was changed, or another part of it was read than the cursor says.",
        advice="Run with --rehash to learn how many differ; see LG503 for the shards themselves.",
    ),
)
