from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.audit import reconcile
from ledger.audit.optimizer_steps import StateName, parse_state_names
from ledger.records.documents import Verdict
from tests.corpus.runs.lg3_lineage import replace_tensors
from tests.ledger.audit.editing import Events, edit, of_kind
from tests.support.toy import Tensors

MOMENT = np.array([1.0])
PATHS = ("checkpoints/step-00000003-s01", "checkpoints/step-00000006-s01")


def steps(number: float, dtype: str = "<f4") -> np.ndarray[Any, Any]:
    return np.array(number, dtype=dtype)


def audited(run: Path, *tensors: Tensors) -> Verdict:
    """Give the two checkpoints of a plain run these optimizer files and audit it."""
    for path, of_one, step in zip(PATHS, tensors, (3, 6), strict=True):
        replace_tensors(run, "optimizer.safetensors", of_one, folder=path, step=step)
    return reconcile(run, rehash=True)


def partition(run: Path, *names: str) -> None:
    """Make the run one whose optimizer has these groups."""

    def change(events: Events) -> None:
        groups = [{"name": name, "tensors": 1, "parameters": 1} for name in names]
        of_kind(events, "session_start")[0]["run"]["optimizer"] = groups
        for train in of_kind(events, "train"):
            train["lr"] = dict.fromkeys(names, train["lr"]["all"])

    edit(run, change)


def test_the_steps_of_every_group_are_compared(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    partition(run, "decay", "no_decay")
    first = {"decay/a/step": steps(3), "no_decay/b/step": steps(3)}
    verdict = audited(run, first, {"decay/a/step": steps(6), "no_decay/b/step": steps(5)})
    (finding,) = verdict.findings
    assert (finding.rule, finding.severity, finding.where) == (
        "LG404",
        "error",
        f"{PATHS[1]}/optimizer.safetensors",
    )
    assert "no_decay counts 5 updates, the checkpoint 6" in finding.message


def test_a_group_without_steps_does_not_count(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    partition(run, "muon", "rest")
    tensors = [{"muon/a/momentum_buffer": MOMENT, "rest/b/step": steps(step)} for step in (3, 6)]
    verdict = audited(run, *tensors)
    assert verdict.findings == []
    assert "LG404" in verdict.checked
    assert "no step" in verdict.not_applicable["LG404 group muon"]


def test_an_optimizer_without_any_step_is_not_applicable(copy_of: Callable[[str], Path]):
    verdict = audited(copy_of("plain"), {"all/a/momentum_buffer": MOMENT}, {"all/a/momentum_buffer": MOMENT})
    assert verdict.findings == []
    assert "LG404" in verdict.not_applicable
    assert "LG404" not in verdict.checked


@pytest.mark.parametrize("name", ["step", "all/step", "other/weight/step", "all//step", "/weight/step"])
def test_other_names_are_not_checked_and_said_so(name: str, copy_of: Callable[[str], Path]):
    verdict = audited(copy_of("plain"), {name: steps(99)}, {name: steps(99)})
    assert verdict.findings == []
    assert name in verdict.not_checked["LG404"]


def test_a_step_of_several_numbers_is_not_checked(copy_of: Callable[[str], Path]):
    tensors = {"all/weight/step": np.array([3, 3], dtype="<f4")}
    verdict = audited(copy_of("plain"), tensors, tensors)
    assert "no single number" in verdict.not_checked["LG404"]


def test_a_lagging_parameter_is_named_once_for_the_run(copy_of: Callable[[str], Path]):
    tensors = [{"all/a/step": steps(step), "all/expert/step": steps(step - 2)} for step in (3, 6)]
    verdict = audited(copy_of("plain"), *tensors)
    (finding,) = verdict.findings
    assert finding.severity == "hint"
    assert "all/expert/step at 4" in finding.message
    assert verdict.verdict == "passed"


def test_a_slash_in_a_parameter_s_name_is_its_own():
    parsed = parse_state_names(["g/a/b/step"], groups=["g"])
    assert parsed == {"g/a/b/step": StateName("g", "a/b", "step")}
