from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ledger.audit import reconcile
from ledger.recorder import LiveState, RunRecorder
from tests.corpus.runs.lg3_lineage import replace_tensors
from tests.ledger.audit.healthy import SMALL
from tests.support.toy import Tensors, ToyLoop, begin, train, write_safetensors

OTHER = "ab" * 32


class Renaming(ToyLoop):
    """An honest loop that saves its tensors under other names than it hashes them."""

    def save(self, folder: Path, metadata: dict[str, str]) -> None:
        weight = self.model_tensors()["weight"]
        write_safetensors(folder / "model.safetensors", {"net.weight": weight}, metadata)
        optimizer = {f"state.{name}": value for name, value in self.optimizer_tensors().items()}
        write_safetensors(folder / "optimizer.safetensors", optimizer, metadata)

    def restore_tensors(self, folder: Path) -> None:
        raise NotImplementedError


class WithoutOptimizer(Renaming):
    """A loop that has no optimizer state at all."""

    def capture(self) -> LiveState:
        return dataclasses.replace(super().capture(), optimizer=None)

    def save(self, folder: Path, metadata: dict[str, str]) -> None:
        write_safetensors(folder / "model.safetensors", self.model_tensors(), metadata)


def trained(run: Path, loop: ToyLoop) -> Path:
    with RunRecorder(run) as recorder:
        begin(recorder, loop)
        train(recorder, loop)
    return run


def test_a_loop_with_names_of_its_own_is_not_called_broken(tmp_path: Path):
    verdict = reconcile(trained(tmp_path / "run", Renaming(SMALL)), rehash=True)
    assert verdict.findings == []
    assert "names" in verdict.not_checked["LG408 model"]
    assert {"LG404", "LG408"} <= verdict.not_checked.keys()


def test_a_loop_without_optimizer_state_is_checked_by_its_model(tmp_path: Path):
    run = trained(tmp_path / "run", WithoutOptimizer(SMALL))
    verdict = reconcile(run, rehash=True)
    assert verdict.findings == []
    assert "LG408" in verdict.checked
    assert "LG404" in verdict.not_applicable
    wrong: Tensors = {"weight": np.array([1.0])}
    replace_tensors(run, "model.safetensors", wrong, was_live=False)
    assert {(found.rule, found.severity) for found in reconcile(run).findings} == {("LG408", "error")}


def test_where_nothing_matches_the_names_of_the_records_still_hold_a_run_to_its_digests(
    copy_of: Callable[[str], Path],
):
    run = copy_of("plain")
    for folder, step in (("checkpoints/step-00000003-s01", 3), ("checkpoints/step-00000006-s01", 6)):
        replace_tensors(
            run,
            "model.safetensors",
            {"weight": np.array([float(step)])},
            folder=folder,
            step=step,
            was_live=False,
        )
    findings = reconcile(run).findings
    assert [found.rule for found in findings] == ["LG408", "LG408"]
    assert findings[0].where == "checkpoints/step-00000003-s01/model.safetensors"
    assert findings[0].evidence["live"] != findings[0].evidence["found"]
