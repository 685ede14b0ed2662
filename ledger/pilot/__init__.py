"""The rehearsal of a recipe: prepare, overfit, acceptance, stability, resume, each judged by its records alone."""

from ledger.pilot.config import PilotConfig
from ledger.pilot.runner import run_pilot
from ledger.pilot.stage import StageOutcome

__all__ = ["PilotConfig", "StageOutcome", "run_pilot"]
