"""The write side of the ledger: `RunRecorder` and what a training loop tells it."""

from ledger.recorder.plan import EvaluationResult, LiveState, SessionPlan
from ledger.recorder.run_recorder import RunRecorder

__all__ = ["EvaluationResult", "LiveState", "RunRecorder", "SessionPlan"]
