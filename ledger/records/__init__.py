"""The schemas of everything the ledger writes or reads. They know nothing of files.

Events of the log are msgspec structs (`events`), because the log is the hot path; documents are strict pydantic
models. What both hold (counters, cursors, digests of state) is defined once, in `parts`. The names below are what a
training loop needs.
"""

from ledger.records.documents import Environment, Recipe
from ledger.records.parts import Cursor, DataIdentities, ModelSummary, OptimizerGroup, Position

__all__ = ["Cursor", "DataIdentities", "Environment", "ModelSummary", "OptimizerGroup", "Position", "Recipe"]
