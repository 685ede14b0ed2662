"""The broken runs: at least one for each rule, each with exactly the findings it must yield."""

from tests.ledger.audit.cases import (
    lg1_form,
    lg2_counters,
    lg3_lineage,
    lg5_claims,
    lg5_data,
    lg6_lock,
    lg7_seal,
)
from tests.ledger.audit.cases.base import CASES, Case

__all__ = [
    "CASES",
    "Case",
    "lg1_form",
    "lg2_counters",
    "lg3_lineage",
    "lg5_claims",
    "lg5_data",
    "lg6_lock",
    "lg7_seal",
]
