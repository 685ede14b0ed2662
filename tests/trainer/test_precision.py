from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ledger.audit import reconcile
from ledger.errors import VerificationError
from ledger.records.events import Overflow, Train
from tests.trainer.records import assert_same_training, events, sessions
from tests.trainer.tiny import StopAfter, tiny_config, train
from trainer.config import Fp16Config, Fp32Config, TrainerConfig
from trainer.loop import TrainingFailedError
from trainer.precision import LossScaler, reason_to_skip

FP16 = {"name": "fp16", "initial_scale": 2.0**18, "growth_interval": 3}
"""A scale at which the tiny model overflows a few times before it trains."""


@pytest.mark.parametrize(
    ("loss", "norm", "reason"),
    [
        (1.0, 1.0, None),
        (math.nan, math.nan, "nonfinite_loss"),
        (math.inf, 1.0, "nonfinite_loss"),
        (1.0, math.inf, "nonfinite_grad"),
        (1.0, math.nan, "nonfinite_grad"),
    ],
)
def test_numbers_that_are_none_are_a_reason_to_skip(loss, norm, reason):
    assert reason_to_skip(loss=loss, grad_norm=norm) == reason
    scaled = "overflow" if reason == "nonfinite_grad" else reason
    assert reason_to_skip(loss=loss, grad_norm=norm, is_scaled=True) == scaled


@given(
    st.lists(st.booleans(), max_size=60),
    st.sampled_from([1.0, 3.0, 65_536.0, 2.0**120]),
    st.sampled_from([1.5, 2.0, 10.0]),
    st.sampled_from([0.1, 0.5, 0.9]),
    st.integers(1, 5),
)
def test_the_scale_moves_as_torchs_own_scaler_does(overflows, initial, growth, backoff, interval):
    ours = LossScaler(
        Fp16Config(
            name="fp16",
            initial_scale=initial,
            growth_factor=growth,
            backoff_factor=backoff,
            growth_interval=interval,
        )
    )
    theirs = torch.amp.GradScaler(
        "cpu",
        init_scale=initial,
        growth_factor=growth,
        backoff_factor=backoff,
        growth_interval=interval,
    )
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    for overflow in overflows:
        theirs.scale(torch.zeros(1))
        parameter.grad = torch.full((1,), math.inf if overflow else 0.0)
        theirs.step(optimizer)
        theirs.update()
        if overflow:
            ours.skipped("overflow")
        else:
            ours.updated()
        assert ours.loss_scale == theirs.get_scale()
        assert ours.growth_tracker == theirs.state_dict()["_growth_tracker"]


def test_other_skips_leave_the_scale_where_it_is():
    scaler = LossScaler(Fp16Config(name="fp16"))
    scaler.updated()
    for reason in ("guard", "nonfinite_loss"):
        assert scaler.skipped(reason) == (65_536.0, 65_536.0)
    assert scaler.growth_tracker == 1


def test_without_a_scaler_there_is_nothing_to_record():
    scaler = LossScaler(Fp32Config(name="fp32"))
    scaler.updated()
    assert (scaler.scale, scaler.loss_scale, scaler.growth_tracker) == (1.0, None, None)
    assert scaler.skipped("nonfinite_grad") is None
    assert scaler.capture() is None


def fp16_config(dataset, **sections) -> TrainerConfig:
    return tiny_config(dataset, precision=FP16, limits={"consecutive_skips": 40}, **sections)


def test_a_real_overflow_skips_the_update_after_its_tokens_were_counted(dataset, tmp_path):
    train(fp16_config(dataset, run={"target_step": 8}), tmp_path / "run")
    found = events(tmp_path / "run")
    skips = [event for event in found if isinstance(event, Overflow)]
    assert skips
    assert {event.reason for event in skips} == {"overflow"}
    scales = [event.loss_scale for event in skips if event.loss_scale is not None]
    assert [float(scale.after) * 2 for scale in scales] == [scale.before for scale in scales]
    assert len(scales) == len(skips)
    last = [event for event in found if isinstance(event, Train)][-1]
    assert (last.step, last.skipped) == (8, len(skips))
    assert last.tokens_seen == (8 + len(skips)) * 32
    assert last.growth_tracker is not None
    assert sessions(tmp_path / "run") == [("fresh", "completed")]


def test_a_scale_that_fell_to_zero_ends_the_run_as_failed(dataset, tmp_path):
    precision = {"name": "fp16", "initial_scale": 2.0**30, "backoff_factor": 1e-320}
    with pytest.raises(TrainingFailedError, match=r"1 attempts in a row.*loss scale above 0.*initial_scale"):
        train(tiny_config(dataset, precision=precision), tmp_path / "run")
    assert sessions(tmp_path / "run") == [("fresh", "failed")]
    (skip,) = [event for event in events(tmp_path / "run") if isinstance(event, Overflow)]
    assert skip.loss_scale is not None
    assert skip.loss_scale.after == 0


@pytest.mark.parametrize("muon", [None, {"learning_rate": 0.02}])
def test_an_fp16_run_reconciles_and_its_resume_is_never_stopped(dataset, tmp_path, muon):
    sections: dict[str, Any] = {
        "run": {"target_step": 14},
        "optimizer": {"learning_rate": 3e-3, "muon": muon},
    }
    config = fp16_config(dataset, **sections)
    train(config, tmp_path / "control")
    assert train(config, tmp_path / "run", stop=StopAfter(attempts=8)) == "interrupted"
    assert train(config, tmp_path / "run", resume="auto") == "completed"
    assert_same_training(tmp_path / "control", tmp_path / "run")
    verdict = reconcile(tmp_path / "run", control=tmp_path / "control", rehash=True)
    assert [finding for finding in verdict.findings if finding.severity != "warning"] == []
    assert {"LG208", "LG209"} <= set(verdict.checked)


def test_a_scaler_forgotten_on_resume_is_refused_before_anything_is_written(dataset, tmp_path, monkeypatch):
    config = fp16_config(dataset, run={"target_step": 14})
    train(config, tmp_path / "run", stop=StopAfter(attempts=8))
    log = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    monkeypatch.setattr(LossScaler, "restore", lambda *_: None)
    with pytest.raises(VerificationError, match="scaler"):
        train(config, tmp_path / "run", resume="auto")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == log
