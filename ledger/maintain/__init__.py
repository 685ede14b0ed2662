"""What writes into a run beside its recorder: a repair, a verdict. And what says whether a folder is fit for runs."""

from ledger.maintain.doctor import Check, Diagnosis, diagnose
from ledger.maintain.repair import RepairReport, RepairStep, repair_run
from ledger.maintain.verdicts import VERDICT, write_verdict

__all__ = [
    "VERDICT",
    "Check",
    "Diagnosis",
    "RepairReport",
    "RepairStep",
    "diagnose",
    "repair_run",
    "write_verdict",
]
