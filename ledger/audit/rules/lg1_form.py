"""LG1: the form of the log."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["FORM_RULES"]

FORM_RULES: Final = (
    Rule(
        id="LG101",
        title="every line is the one encoding of a known event",
        severities=("error", "missing"),
        meaning="Each line of metrics.jsonl is, byte for byte, what the ledger writes for the event it "
        "decodes to: exactly the fields of its kind, in order, with their types. A well-formed line of an "
        "unknown kind is kept; it makes the verdict incomplete, because nobody can say what it would have "
        "changed.",
        causes="A tool re-indented, sorted or re-encoded the file (an editor, jq, git with autocrlf); bytes "
        "were damaged on disk; the log was written by a newer version.",
        advice="Restore the file from a copy. If the kind is unknown, audit with a newer version of the "
        "ledger.",
    ),
    Rule(
        id="LG102",
        title="the chain of digests is unbroken",
        severities=("error",),
        meaning="Every line ends with a digest over the line before it and itself. A digest that does not "
        "follow names the first line where the log is no longer what was written.",
        causes="A line was edited, removed, inserted or moved, or one bit of it flipped; two logs were "
        "concatenated.",
        advice="Compare the named line with a backup. Do not re-chain a damaged log: nothing would vouch "
        "for it.",
    ),
    Rule(
        id="LG103",
        title="seq is dense and sessions follow each other",
        severities=("error",),
        meaning="`seq` counts 0, 1, 2, … over the whole file; sessions are 1, 2, … of one run, each with an id "
        "of its own, and never interleave.",
        causes="Lines were removed or repeated; logs of two runs were joined; two processes wrote at once on a file "
        "system without locks.",
        advice="Look at the lines around the named seq; restore the file from a copy.",
    ),
    Rule(
        id="LG104",
        title="the log ends with a committed line",
        severities=("missing",),
        meaning="A last line without its newline was never committed; an absent or empty log holds no "
        "evidence. Both can be repaired by the next session or by hand. Damage anywhere else is not of this "
        "kind and is never cut off.",
        causes="The process was killed while it wrote, or before it wrote its first line; the machine lost "
        "power.",
        advice="Resume the run: the torn tail is copied to quarantine/ and the log goes on after it. Without a "
        "resume, `ledger repair RUN --apply` does that.",
    ),
    Rule(
        id="LG105",
        title="pinned positions lie on the chain",
        severities=("error",),
        meaning="run.json, every checkpoint of this run and its seal name a line of the log by seq and chain digest, "
        "and so do a kept verdict.json and a head that somebody noted (--expect-head). Each such line is still there "
        "with that digest. What lies behind the last of them could be cut off unnoticed; the report says from where "
        "on.",
        causes="The log was cut at a line's end, rolled back to an older copy, or rewritten behind its "
        "checkpoints; a checkpoint or run.json was copied in from another run; the head was noted of another run.",
        advice="Restore the newer copy of metrics.jsonl. What the log lost cannot be reconstructed from "
        "checkpoints.",
    ),
    Rule(
        id="LG106",
        title="each session has one start, first, and at most one end, last",
        severities=("error",),
        meaning="The first event of a session is its session_start; a session_end is its last event; "
        "neither is repeated.",
        causes="Lines were removed; a training loop wrote events after it had ended the session.",
        advice="Look at the named line. If a loop of yours wrote it, use one recorder for one session.",
    ),
    Rule(
        id="LG107",
        title="time does not run backwards in a session",
        severities=("error", "hint"),
        meaning="`elapsed` comes from a monotonic clock and never falls in a session (error). The wall "
        "clock may jump; a jump of more than a minute against `elapsed` is a hint, since nothing is ordered "
        "by it.",
        causes="`elapsed`: the log was edited or spliced. Wall clock: it was set, or the machine was "
        "suspended.",
        advice="For `elapsed`, compare with a backup. For a wall clock that jumped there is nothing to do.",
    ),
    Rule(
        id="LG108",
        title="run.json says what the log says",
        severities=("error", "warning"),
        meaning="run.json is derived from the log: sessions 1, 2, … in order, recipes, data, target and plan. One "
        "that is absent, or exactly what it was some sessions ago, is a warning (it can be rebuilt) unless a "
        "writer is at work; one that is damaged, contradicts the log or names a session that the log does not "
        "have is an error. The run's facts stand in the first session_start alone.",
        causes="Behind: the process was killed between the log's line and the file. Contradiction: someone "
        "edited it, or it belongs to another run. Missing session: the log was rolled back.",
        advice="Run `ledger repair RUN --apply`, or remove a damaged run.json: the next session writes it anew from "
        "the log. If the log lacks a session, restore the log.",
    ),
)
