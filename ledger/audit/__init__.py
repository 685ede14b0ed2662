"""The audit: what the records of a run prove. It reads, it never writes.

`reconcile` checks every rule over all sessions. A rule yields findings; it never raises on bad evidence and never
stops the others.
"""

from ledger.audit.reconciliation import reconcile

__all__ = ["reconcile"]
