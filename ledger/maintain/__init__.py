"""What writes into or beside a run, its recorder apart: repairs, verdicts, waivers, seals; and if a folder is fit."""

from ledger.maintain.attesting import attest_run
from ledger.maintain.doctor import Check, Diagnosis, diagnose
from ledger.maintain.repair import RepairReport, RepairStep, repair_run
from ledger.maintain.sealing import SealedRun, is_sealed, read_seal, refuse_sealed, seal_run
from ledger.maintain.verdicts import VERDICT, write_verdict
from ledger.maintain.waive import add_waiver, withdraw_waiver

__all__ = [
    "VERDICT",
    "Check",
    "Diagnosis",
    "RepairReport",
    "RepairStep",
    "SealedRun",
    "add_waiver",
    "attest_run",
    "diagnose",
    "is_sealed",
    "read_seal",
    "refuse_sealed",
    "repair_run",
    "seal_run",
    "withdraw_waiver",
    "write_verdict",
]
