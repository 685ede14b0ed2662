from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from ledger.audit import reconcile
from ledger.recorder import RunRecorder
from ledger.records.documents import Finding
from tests.support.toy import (
    Tensors,
    ToyLoop,
    ToySettings,
    attempt,
    begin,
    consume,
    save,
    train,
)

SETTINGS = ToySettings(target_step=6, checkpoint_interval=2, evaluate_every=None, accumulation=1)


class Frozen(ToyLoop):
    """Its optimizer counts but moves nothing."""

    def learn(self, digest: bytes) -> float:
        self.updates += 1
        return 2.0 + digest[0]


class Buffered(ToyLoop):
    """Has, beside its weight, a number that every look at data moves."""

    def model_tensors(self) -> Tensors:
        return {"mean": np.array([float(self.draws)]), **super().model_tensors()}


class BufferedFrozen(Buffered, Frozen):
    """Nothing but the number that no optimizer owns moves."""


class Nameless(Buffered):
    """Says nothing of which of its tensors the optimizer moves."""

    def optimizer_tensors(self) -> Tensors:
        return {"moment": np.array([self.weight])}

    def restore_tensors(self, folder: Path) -> None:
        self.weight = float(np.frombuffer((folder / "model.safetensors").read_bytes()[-8:])[0])


def trained(run: Path, loop: ToyLoop, *, then: Callable[[RunRecorder, ToyLoop], object] = train) -> Path:
    with RunRecorder(run) as recorder:
        begin(recorder, loop, start="auto" if recorder.has_sessions else "fresh")
        then(recorder, loop)
    return run


def found(run: Path) -> Sequence[Finding]:
    return [finding for finding in reconcile(run).findings if finding.rule == "LG213"]


def half_way(recorder: RunRecorder, loop: ToyLoop) -> None:
    attempt(recorder, loop)
    save(recorder, loop, "interval")
    recorder.abandon()


def skip_and_save(recorder: RunRecorder, loop: ToyLoop) -> None:
    consume(recorder, loop)
    recorder.skipped("guard", loss=1.0, grad_norm=1.0)
    save(recorder, loop, "signal")
    recorder.abandon()


def skip_move_and_save(recorder: RunRecorder, loop: ToyLoop) -> None:
    loop.weight += 1
    skip_and_save(recorder, loop)


def test_a_model_that_never_moves_is_found_at_its_first_checkpoint(tmp_path: Path):
    findings = found(trained(tmp_path / "run", Frozen(SETTINGS)))
    assert [finding.severity for finding in findings] == ["error"] * 3
    assert findings[0].where == "checkpoints/step-00000002-s01"
    assert "at step 2 is that of step 0" in findings[0].message


@pytest.mark.parametrize("rates", [(0.0, 0.0), (0.0, 0.1), (1e-9, 1e-14)])
def test_only_a_rate_that_shows_must_move_the_model(rates: tuple[float, float], tmp_path: Path):
    def update_at_those_rates(recorder: RunRecorder, loop: ToyLoop) -> None:
        for rate in rates:
            consume(recorder, loop)
            loop.updates += 1
            recorder.updated(loss=1.0, grad_norm=0.5, lr={"all": rate})
            save(recorder, loop, "interval")
        recorder.abandon()

    findings = found(trained(tmp_path / "run", Frozen(SETTINGS), then=update_at_those_rates))
    assert [finding.where[-12:-4] for finding in findings] == ["00000002"] * (rates[1] == 0.1)


def test_a_number_that_no_optimizer_owns_does_not_hide_it(tmp_path: Path):
    findings = found(trained(tmp_path / "run", BufferedFrozen(SETTINGS)))
    assert [finding.severity for finding in findings] == ["error"] * 2
    assert "no trainable parameter moved from step 2" in findings[0].message


@pytest.mark.parametrize("kind", [ToyLoop, Buffered, Nameless])
def test_honest_runs_make_no_finding(kind: type[ToyLoop], tmp_path: Path):
    run = trained(tmp_path / "run", kind(SETTINGS), then=half_way)
    trained(run, kind(SETTINGS), then=skip_and_save)
    assert found(run) == []
    trained(run, kind(SETTINGS))
    assert found(run) == []


def test_a_skip_that_moves_a_parameter_is_found(tmp_path: Path):
    run = trained(tmp_path / "run", ToyLoop(SETTINGS), then=half_way)
    trained(run, ToyLoop(SETTINGS), then=skip_move_and_save)
    (finding,) = found(run)
    assert finding.where == "checkpoints/step-00000001-s02"
    assert finding.message.endswith("both stand at step 1: weight")


def test_what_moved_at_one_step_is_left_open_where_nothing_names_the_parameters(tmp_path: Path):
    run = trained(tmp_path / "run", Nameless(SETTINGS), then=half_way)
    trained(run, Nameless(SETTINGS), then=skip_move_and_save)
    assert found(run) == []
    assert "LG213 same step" in reconcile(run).not_checked


class Partly(ToyLoop):
    """Has a second parameter that the optimizer owns and never moves."""

    def model_tensors(self) -> Tensors:
        return {"bias": np.array([0.0]), **super().model_tensors()}

    def optimizer_tensors(self) -> Tensors:
        return {"all/bias/step": np.array(self.updates, dtype="<f4"), **super().optimizer_tensors()}


def test_a_parameter_that_stands_still_throughout_is_a_hint(tmp_path: Path):
    (finding,) = found(trained(tmp_path / "run", Partly(SETTINGS)))
    assert finding.severity == "hint"
    assert finding.message.endswith(": bias")


def test_superseded_checkpoints_are_no_ancestors(tmp_path: Path):
    """The second session repeats what the first did behind the checkpoint that it starts from: an equal model."""

    def ahead(recorder: RunRecorder, loop: ToyLoop) -> None:
        for _ in range(3):
            attempt(recorder, loop)
            save(recorder, loop, "interval")
        recorder.abandon()

    run = trained(tmp_path / "run", ToyLoop(SETTINGS), then=ahead)
    loop = ToyLoop(SETTINGS)
    with RunRecorder(run) as recorder:
        begin(recorder, loop, start="resume", named=run / "checkpoints" / "step-00000001-s01")
        train(recorder, loop)
    assert found(run) == []
