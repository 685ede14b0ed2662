from __future__ import annotations

from tests.ledger.audit.conftest import copy_of, healthy_run

__all__ = ["copy_of", "healthy_run"]
