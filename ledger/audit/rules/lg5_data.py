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
        "can be checked against it. A branch that continues another run reads what its parent read.",
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
        "shards that were rehashed while training, and when; what was found then must be what the manifest "
        "says, too. Two shards with the same bytes are a warning.",
        causes="Bytes damaged on disk or in transfer.",
        advice="Restore the named shard. What was trained before the damage cannot be told from the digest "
        "alone.",
    ),
    Rule(
        id="LG504",
        title="tokens are what the manifest says of them",
        severities=("error", "warning"),
        meaning="With --rehash: every token id lies below the vocabulary, the end-of-text token stands at the "
        "end of each document and nowhere else, and no text lies in two splits of a dataset (documents are "
        "compared by their token ids). Where the validation text was given rather than split off by the "
        "key, a shared text is counted and is a warning; so is one that a source of a mix trains on and "
        "another dataset holds out.",
        causes="Another tokenizer or a cast to a smaller type; a literal end-of-text token inside a text; "
        "splitting by position in a corpus with duplicates.",
        advice="Prepare the dataset again. A loss on held-out text that was also trained on says little.",
    ),
    Rule(
        id="LG505",
        title="positions processed follow from the cursor",
        severities=("error",),
        meaning="On the current branch, for each source, epochs × usable tokens + offset equals the "
        "microbatches that it gave × tokens per microbatch; in a mix the law of its weights and seed says "
        "which source gave each. Distinct tokens and coverage are reported.",
        causes="The cursor was restored to another place than the counters, or counts prefetched batches.",
        advice="Compare the last cursor with the counters of the same line.",
    ),
    Rule(
        id="LG506",
        title="the batches logged are the data there is",
        severities=("error",),
        meaning="Microbatch digests recomputed from the shards at the cursor, in the order that the recipe's "
        "shuffle and mix give, equal the log's: a spread sample by default, all of them with --rehash.",
        causes="The data was changed, or another part of it was read than the cursor says: a loader that "
        "began anew after a resume, forgot the accumulation, shuffled with another seed or chose another "
        "source.",
        advice="Run with --rehash to learn how many differ; see LG503 for the shards themselves.",
    ),
)
