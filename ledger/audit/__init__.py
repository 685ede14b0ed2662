"""The audit: what the records of a run prove. It reads, it never writes.

`reconcile` checks every rule over all sessions, `summarize` form and counters of the log and the latest session,
`verify` every byte, `compare_runs` what two runs do not share. A rule yields findings; it never raises on bad
evidence and never stops the others.
"""

from ledger.audit.attestation import Attestation, read_attestation
from ledger.audit.comparison import Comparison, compare_runs
from ledger.audit.listing import ListedRun, Listing, list_runs
from ledger.audit.reconciliation import reconcile
from ledger.audit.rules import RULES, Rule
from ledger.audit.summary import BestLoss, SessionSummary, Summary, summarize
from ledger.audit.verification import verify, verify_attestation

__all__ = [
    "RULES",
    "Attestation",
    "BestLoss",
    "Comparison",
    "ListedRun",
    "Listing",
    "Rule",
    "SessionSummary",
    "Summary",
    "compare_runs",
    "list_runs",
    "read_attestation",
    "reconcile",
    "summarize",
    "verify",
    "verify_attestation",
]
