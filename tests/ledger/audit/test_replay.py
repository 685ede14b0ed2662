from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile
from tests.ledger.audit.healthy import HEALTHY
from tests.support.audited import assert_adds_up


@pytest.mark.parametrize("name", HEALTHY)
def test_every_honest_run_adds_up_a_second_way(name: str, healthy_run: Callable[[str], Path]):
    run = healthy_run(name)
    assert_adds_up(run, reconcile(run))
