"""What writes into a run beside its recorder: repair, verdict, waiver; and what says if a folder is fit for runs."""

from ledger.maintain.doctor import Check, Diagnosis, diagnose
from ledger.maintain.repair import RepairReport, RepairStep, repair_run
from ledger.maintain.verdicts import VERDICT, write_verdict
from ledger.maintain.waive import add_waiver, withdraw_waiver

__all__ = [
    "VERDICT",
    "Check",
    "Diagnosis",
    "RepairReport",
    "RepairStep",
    "add_waiver",
    "diagnose",
    "repair_run",
    "withdraw_waiver",
    "write_verdict",
]
