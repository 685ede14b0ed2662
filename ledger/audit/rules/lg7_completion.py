"""LG7: completion."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["COMPLETION_RULES"]

COMPLETION_RULES: Final = (
    Rule(
        id="LG701",
        title="the branch reached its target",
        severities=("error", "missing"),
        meaning="The current branch stands at the target step and the last session ended `completed`, or "
        "`closed` on a parent at that target. A session that ended `completed` short of it, `closed` on "
        "a parent that is not there, or with another target than the one in force, is an error; anything else is "
        "missing.",
        causes="The run stopped early, was interrupted, or ran out of data; or success was inferred from a "
        "process's exit.",
        advice="Resume the run. To accept less, state a lower claim; the target is never lowered.",
    ),
    Rule(
        id="LG702",
        title="the final checkpoint exists",
        severities=("error", "missing"),
        meaning="A checkpoint at exactly the target step lies on the branch, complete. With the policy "
        "`none` this does not apply: no weights are kept.",
        causes="Killed before the final save; the last save happened at an interval below the target; files "
        "were removed.",
        advice="Resume: a session that starts at or below the target writes it.",
    ),
    Rule(
        id="LG703",
        title="the final evaluation exists",
        severities=("missing", "error"),
        meaning="A complete, finite evaluation names the final checkpoint's manifest (without weights: the "
        "final state) and the run's validation data, not the split it trains on. A recipe without validation: not "
        "applicable. A val event that contradicts its file, or is called complete with fewer target positions than "
        "its split has or than another complete one of the same data, is an error.",
        causes="Killed before it; a subset was measured; an earlier checkpoint was evaluated.",
        advice="Resume: the closing session evaluates. Or evaluate the final checkpoint by hand.",
    ),
    Rule(
        id="LG704",
        title="planned and actual tokens are explained",
        severities=("error",),
        meaning="On the branch Δtokens_seen = Δattempts × tokens per update (+ the remainder of an "
        "interrupted window). Once the target is reached, planned and actual tokens differ only by skipped "
        "attempts.",
        causes="Tokens counted twice or not at all; the plan was made for another geometry.",
        advice="Check LG203 and LG204 first: they name the line.",
    ),
    Rule(
        id="LG705",
        title="nothing was added to a sealed run, changed or removed",
        severities=("error",),
        meaning="Every file of the run is listed in seal.json with its size and digest, except run.lock, the text logs "
        "under logs/ and the seal itself; nothing else lies there, and the verdict in the seal is a passed one of this "
        "run at this head. Digests of tensor files are compared with --rehash, all others always. With --expect-head "
        "the seal is also the one that was quoted. A run without a seal: not applicable. An attestation lies beside "
        "the run, not in it; `ledger verify --attestation` checks it.",
        causes="A file was edited, replaced or added after the run was declared done; the run was sealed anew; a copy "
        "is partial.",
        advice="Restore the run from a copy that matches its seal. What is to be added later (an evaluation, an "
        "export) goes beside the run; an extension is a branch run.",
    ),
)
