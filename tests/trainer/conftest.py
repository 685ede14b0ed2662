from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ledger.audit import reconcile
from tests.trainer.tiny import write_dataset


@pytest.fixture(scope="session")
def dataset(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture(autouse=True)
def _every_run_reconciles(tmp_path) -> Iterator[None]:
    """Audit every run that a test leaves: what this trainer does is never an error. (Not what a test damaged.)"""
    yield
    for log in tmp_path.rglob("metrics.jsonl"):
        if log.parent.name != "damaged":
            verdict = reconcile(log.parent)
            errors = [finding for finding in verdict.findings if finding.severity == "error"]
            assert not errors, errors
