"""The write side of the ledger: `RunRecorder` and what a training loop tells it."""

from ledger.recorder.arrays import digest_arrays
from ledger.recorder.environment import describe_code, describe_environment
from ledger.recorder.plan import EvaluationResult, LiveState, SessionPlan
from ledger.recorder.run_recorder import RunRecorder

__all__ = [
    "EvaluationResult",
    "LiveState",
    "RunRecorder",
    "SessionPlan",
    "describe_code",
    "describe_environment",
    "digest_arrays",
]
