"""The rehearsal of a recipe: prepare, smoke, overfit, acceptance, stability, resume, validate."""

from ledger.pilot.kinds import STAGES
from ledger.pilot.plan import Plan
from ledger.pilot.processes import last_logged_step, planned_steps
from ledger.pilot.progress import Moment
from ledger.pilot.runner import run_pilot
from ledger.pilot.stage import StageOutcome

__all__ = ["STAGES", "Moment", "Plan", "StageOutcome", "last_logged_step", "planned_steps", "run_pilot"]
