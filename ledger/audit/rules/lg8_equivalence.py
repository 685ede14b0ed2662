"""LG8: a resumed run against an uninterrupted control."""

from __future__ import annotations

from typing import Final

from ledger.audit.rules.base import Rule

__all__ = ["EQUIVALENCE_RULES"]

_EVIDENCE = (
    " Needs per-update evidence on both sides (logging interval 1, state digests) and three updates after the last "
    "resume that both logged; without them the item is not testable."
)

EQUIVALENCE_RULES: Final = (
    Rule(
        id="LG801",
        title="run and control start alike",
        severities=("error", "missing"),
        meaning="Before the first microbatch both runs hold the same state: generators, model, optimizer, "
        "cursor, chain." + _EVIDENCE,
        causes="Another seed, another initialisation, another recipe; the control is not one.",
        advice="Compare the recipes with `ledger diff`; start the control from the same configuration.",
    ),
    Rule(
        id="LG802",
        title="run and control read the same batches",
        severities=("error", "missing"),
        meaning="At every update the batch digests and data_chain of both branches are equal." + _EVIDENCE,
        causes="The reader's position was not restored, or restored after the first batch was drawn.",
        advice="Look at the first update that is named: is it the first one after a resume?",
    ),
    Rule(
        id="LG803",
        title="run and control measure the same loss, norm and rate",
        severities=("error", "missing", "hint"),
        meaning="At every update loss, gradient norm, rate and scale are equal, bit for bit where the "
        "recipe declares "
        "deterministic execution, else within a relative tolerance of 0.001 (hint)." + _EVIDENCE,
        causes="With equal batches: weights, buffers or the dropout generator differ. Loss equal and norm "
        "different: the backward pass. Rate different: the schedule was not restored.",
        advice="Take the first item that differs at the first update; what comes after it follows from it.",
    ),
    Rule(
        id="LG804",
        title="run and control hold the same parameters",
        severities=("error", "missing"),
        meaning="After every update the digests of model and optimizer are equal. A train event without them, although "
        "its recipe asks for them, is missing also without a control." + _EVIDENCE,
        causes="With equal losses: the optimizer's moments or its step were not restored, or master weights "
        "were rebuilt.",
        advice="Compare the tensor tables of the two checkpoints nearest to the first difference.",
    ),
)
