"""LG6: recipes and environments."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["RECIPE_RULES"]

RECIPE_RULES: Final = (
    Rule(
        id="LG601",
        title="every file named by digest exists with it",
        severities=("error", "hint"),
        meaning="Recipes, environments, code diffs, evaluations, quarantined tails and a branch's parent "
        "manifest with its recipe are there with the digest that names them; the identity of every session's "
        "recipe is the same and is the one stated. Exported weights have the size that the log names, with "
        "--rehash the digest; that they were removed is a hint.",
        causes="A file was edited, removed or left out of a copy; a session started with another recipe.",
        advice="Restore the named file. A changed recipe is a new run.",
    ),
    Rule(
        id="LG602",
        title="recipe changes are the amendments",
        severities=("error",),
        meaning="The differences between a session's recipe and its parent's, in class identity or in the "
        "target, are exactly that session's amendment events. A branch that continues another run is compared with "
        "the recipe of its parent checkpoint, and may differ in the schedule and the target alone. From one session to "
        "the next the target only rises.",
        causes="A setting was changed on resume without being recorded; an amendment was recorded that "
        "changed nothing; the target was lowered to where the run happened to stand.",
        advice="Compare the two recipes with `ledger diff`. A shorter run is a branch with a target of its own.",
    ),
    Rule(
        id="LG603",
        title="a locked run equals its lock",
        severities=("error",),
        meaning="Where the run was started under recipe.lock.json: the identity leaves, the checkpoint section, the "
        "target and the data of every session are the lock's, nothing was amended, and the lock states a passed "
        "verdict for every pilot. The logs of pilots that are at hand are compared with the lock; of others its word "
        "is taken, and the verdict says so.",
        causes="The recipe was changed after it was decided upon; the lock was edited; a pilot was run again in the "
        "same folder.",
        advice="Freeze the changed recipe into a new lock that names the old one and the reason, and start a new run.",
    ),
    Rule(
        id="LG604",
        title="the code is the same in all sessions",
        severities=("warning",),
        meaning="Each session's environment states commit, dirty flag and the digest of the difference to it; a "
        "change between sessions is a warning. Where the code state is not stated this is not checked.",
        causes="The code was changed, or committed, between an interruption and the resume.",
        advice="Look at what changed in between: it may be why redone work differs.",
    ),
    Rule(
        id="LG605",
        title="environment changes are listed",
        severities=("warning",),
        meaning="Packages, hardware or settings that differ between sessions, the code state apart. They "
        "weaken the claim that a resumed run equals one that never stopped.",
        causes="An upgrade, another machine, another number of threads.",
        advice="Nothing needs doing if it was intended; otherwise resume in the old environment.",
    ),
)
