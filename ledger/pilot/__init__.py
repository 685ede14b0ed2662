"""The rehearsal of a recipe: prepare, overfit, acceptance, stability, resume, each judged by its records alone."""

from ledger.pilot.config import PilotConfig
from ledger.pilot.processes import last_logged_step, planned_steps
from ledger.pilot.runner import STAGES, run_pilot
from ledger.pilot.stage import StageOutcome

__all__ = ["STAGES", "PilotConfig", "StageOutcome", "last_logged_step", "planned_steps", "run_pilot"]
