"""LG9: the gates of a pilot's stages. They judge a stage, not a run, so no audit of a run decides them."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["GATE_RULES"]

GATE_RULES: Final = (
    Rule(
        id="LG901",
        title="every gate of a stage is measured, finite and within its bound",
        severities=("error",),
        meaning="A gate is a bound (min, max or a word) on a metric that is read from the records of the stage's runs "
        "alone, over the whole branch or its last half or third. A metric that the records do not show, or that is no "
        "finite number, misses every bound.",
        causes="The recipe does not do what is asked of it; or the run was too short for the metric, or did not record "
        "what it needs. The pilot's text says for each missed gate what to think of.",
        advice="Change the recipe and run the pilot again: what is not touched by the change is kept. Change a bound "
        "only for a reason, and say it in the gate's `reason`: it goes into the record.",
    ),
    Rule(
        id="LG902",
        title="something is asked of every stage",
        severities=("warning",),
        meaning="A stage without gates passes whatever it measured; a default gate that the configuration switches off "
        "is measured all the same and listed as not gated.",
        causes="A gate set to null, or a stage of another name without a `gates` section.",
        advice="Give it a bound that you would act upon, or leave the warning where others can see it.",
    ),
)
