"""The audit: what the records of a run prove. It reads, it never writes.

`reconcile` checks every rule over all sessions, `summarize` form and counters of the log and the latest session,
`verify` every byte, `compare_runs` what two runs do not share. A rule yields findings; it never raises on bad
evidence and never stops the others.

Each name below is imported from its module when it is first asked for: a command that needs one waits for no other.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
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

_HOMES: Final = {
    "RULES": "rules",
    "Attestation": "attestation",
    "BestLoss": "summary",
    "Comparison": "comparison",
    "ListedRun": "listing",
    "Listing": "listing",
    "Rule": "rules",
    "SessionSummary": "summary",
    "Summary": "summary",
    "compare_runs": "comparison",
    "list_runs": "listing",
    "read_attestation": "attestation",
    "reconcile": "reconciliation",
    "summarize": "summary",
    "verify": "verification",
    "verify_attestation": "verification",
}
"""Name to the module of this package that defines it."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a name when it is first asked for (PEP 562)."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value
