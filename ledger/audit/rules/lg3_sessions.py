"""LG3: sessions and lineage."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["SESSION_RULES"]

SESSION_RULES: Final = (
    Rule(
        id="LG301",
        title="every session's parent is known",
        severities=("error",),
        meaning="A session starts from a checkpoint of this run that an event names or that is complete and "
        "pinned on this log, or from the run's beginning (fresh or branch in session 1; later restart, or "
        "auto where the branch had no checkpoint). One that chooses by itself (auto) takes the latest of the branch.",
        causes="A checkpoint was copied in from elsewhere, removed by hand without an event, or named "
        "wrongly; or a program that chose the latest by a name's order, a link or a clock took an older one.",
        advice="Look for the named checkpoint; a start from foreign weights is a branch run of its own.",
    ),
    Rule(
        id="LG302",
        title="a session starts exactly where its parent stood",
        severities=("error",),
        meaning="Counters, cursor, data_chain and the digests of the live state after restoring equal the "
        "parent checkpoint's. From the run's beginning counters and cursor are 0 and data_chain has its "
        "first value. A branch that continues another run starts at its parent checkpoint; of one that takes weights "
        "alone only the model's digest is compared. Generators are not compared across another number of ranks.",
        causes="Something was not restored: the scaler's growth tracker, a generator, the schedule, the "
        "reader's position; totals were reset on resume.",
        advice="The finding names the part. Restore it before the first batch is drawn, and compare again.",
    ),
    Rule(
        id="LG303",
        title="superseded work is what the history says",
        severities=("error",),
        meaning="The session_start states how much of the branch before it is no longer on it. Recomputed "
        "from the log, the numbers are the same.",
        causes="The log was changed behind the session, or a writer computed the numbers otherwise.",
        advice="Trust the recomputed numbers; look for other findings about the sessions named.",
    ),
    Rule(
        id="LG304",
        title="the last session has an end",
        severities=("missing",),
        meaning="Without a session_end the run may be running, killed or lost; its status is then derived "
        "from the lock, the process and the host. Earlier sessions without an end are shown in the account "
        "only.",
        causes="The process was killed or the machine stopped; or the run is still going.",
        advice="Wait for a running session; resume a crashed one.",
    ),
    Rule(
        id="LG305",
        title="the branch is one path",
        severities=("error",),
        meaning="Followed back from the last session, each parent is a checkpoint of an earlier session, of "
        "the session and step it is said to be, up to the run's starting counters. So is the checkpoint of another run "
        "that a branch began at, by the manifest in parent/.",
        causes="A session_start was edited, or sessions were spliced together from several logs.",
        advice="Compare the named session_start with the checkpoint it names.",
    ),
    Rule(
        id="LG306",
        title="redone work agrees",
        severities=("error", "hint"),
        meaning="After an interruption the run redoes what was lost. Wherever both sides logged the same "
        "number of microbatches, data_chain is equal, and where their windows cover the same microbatches "
        "so are loss, norms, rates, scale, and overflow events by attempt: bit for bit. A difference is an "
        "error if identity and environment agree and the recipe declares deterministic execution, else a "
        "hint.",
        causes="The reader, a generator, the optimizer or the scaler did not come back as it was. With "
        "equal batches and another loss: weights, buffers or dropout.",
        advice="Start at the first difference that is named; the message says where to look. Data first: if data_chain "
        "differs, nothing after it can agree. A difference in the first update after the resume is something that was "
        "not restored; a later one may also be an operation that does not repeat itself.",
    ),
    Rule(
        id="LG307",
        title="a session without an update is closed",
        severities=("warning",),
        meaning="A session that ended and applied no update ends `closed` (its parent stands at the "
        "target); another ending is worth a look. A `closed` session with updates contradicts itself.",
        causes="Stopped right after the start; every attempt was skipped; a target that was already reached.",
        advice="Check that the session did what it was started for.",
    ),
    Rule(
        id="LG308",
        title="a later session says how it starts",
        severities=("error",),
        meaning="Every session but the first states its choice: resume, auto or restart.",
        causes="A folder that already held a run was silently started afresh or silently resumed.",
        advice="State the choice when starting in a folder that holds a run.",
    ),
    Rule(
        id="LG309",
        title="the geometry is the same in all sessions",
        severities=("error",),
        meaning="Replicas, tokens per microbatch, accumulation, and the number of random-generator states "
        "in checkpoints do not change between sessions; all replicas take equal shares of a microbatch.",
        causes="The job was resumed on another number of devices, or with another batch geometry.",
        advice="Resume with the geometry of the first session; another geometry is another experiment.",
    ),
)
