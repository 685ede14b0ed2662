"""Broken runs, made by code from honest ones: at least one for each rule and each kind that the field reports."""

from tests.corpus.runs import (
    claims,
    field,
    forged,
    lg1_form,
    lg2_counters,
    lg3_branches,
    lg3_lineage,
    lg4_parameters,
    lg5_claims,
    lg5_data,
    lg6_lock,
    lg7_seal,
    small_lies,
)
from tests.corpus.runs.base import CASES, Case

__all__ = [
    "CASES",
    "Case",
    "claims",
    "field",
    "forged",
    "lg1_form",
    "lg2_counters",
    "lg3_branches",
    "lg3_lineage",
    "lg4_parameters",
    "lg5_claims",
    "lg5_data",
    "lg6_lock",
    "lg7_seal",
    "small_lies",
]
