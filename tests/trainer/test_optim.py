from __future__ import annotations

import pytest
import torch

from trainer.config import ModelConfig, OptimizerConfig
from trainer.model.decoder import Decoder
from trainer.optim import (
    build_optimizer,
    expected_optimizer_tensors,
    optimizer_tensors,
    partition,
    partition_summary,
    restore_optimizer_tensor,
    set_learning_rate,
)
from trainer.precision import clip_gradients, gradient_norm, reason_to_skip


@pytest.fixture
def model() -> Decoder:
    torch.manual_seed(0)
    config = ModelConfig(vocabulary=20, width=16, layers=2, heads=2, kv_heads=1, hidden=24, tied=False)
    return Decoder(config, sequence=8)


def _gradients(model) -> None:
    model(torch.tensor([[1, 2, 3]])).square().mean().backward()


def test_every_parameter_is_in_exactly_one_group(model):
    groups = partition(model)
    names = [name for members in groups.values() for name in members]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert len(names) == len(set(names))


def test_matrices_decay_and_norms_do_not(model):
    groups = partition(model)
    assert all("norm" in name for name in groups["no_decay"])
    assert not any("norm" in name for name in groups["decay"])
    optimizer = build_optimizer(groups, OptimizerConfig(learning_rate=1e-3, weight_decay=0.3))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]


def test_the_summary_adds_up(model):
    summary = partition_summary(partition(model))
    assert [group.name for group in summary] == ["decay", "no_decay"]
    assert sum(group.parameters for group in summary) == sum(p.numel() for p in model.parameters())
    assert sum(group.tensors for group in summary) == len(list(model.parameters()))


@pytest.mark.parametrize("fused", [True, False])
def test_expected_state_is_what_an_update_leaves(model, fused):
    groups = partition(model)
    optimizer = build_optimizer(groups, OptimizerConfig(learning_rate=1e-3, fused=fused))
    assert optimizer_tensors(groups, optimizer) == {}
    _gradients(model)
    assert set_learning_rate(optimizer, 1e-3) == {"decay": 1e-3, "no_decay": 1e-3}
    optimizer.step()
    left, expected = optimizer_tensors(groups, optimizer), expected_optimizer_tensors(groups)
    assert {name: (value.dtype, value.shape) for name, value in left.items()} == {
        name: (value.dtype, value.shape) for name, value in expected.items()
    }


def test_a_restored_optimizer_goes_on_bit_for_bit(model):
    groups = partition(model)
    optimizer = build_optimizer(groups, OptimizerConfig(learning_rate=1e-3))
    for _ in range(2):
        _gradients(model)
        set_learning_rate(optimizer, 1e-3)
        optimizer.step()
        optimizer.zero_grad()
    twin = Decoder(
        ModelConfig(vocabulary=20, width=16, layers=2, heads=2, kv_heads=1, hidden=24, tied=False), sequence=8
    )
    twin.load_state_dict(model.state_dict())
    twin_groups = partition(twin)
    restored = build_optimizer(twin_groups, OptimizerConfig(learning_rate=1e-3))
    for name, value in optimizer_tensors(groups, optimizer).items():
        restore_optimizer_tensor(twin_groups, restored, name, value.clone())
    for one, its in ((model, optimizer), (twin, restored)):
        _gradients(one)
        set_learning_rate(its, 5e-4)
        its.step()
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_clipping_brings_the_norm_to_the_limit(model):
    _gradients(model)
    parameters = list(model.parameters())
    norm = gradient_norm(parameters).item()
    clip_gradients(parameters, norm=norm, limit=norm * 2)
    assert gradient_norm(parameters).item() == norm
    clip_gradients(parameters, norm=norm, limit=norm / 2)
    assert gradient_norm(parameters).item() == pytest.approx(norm / 2, rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "norm", "reason"),
    [
        (1.0, 1.0, None),
        (float("nan"), float("nan"), "nonfinite_loss"),
        (float("inf"), 1.0, "nonfinite_loss"),
        (1.0, float("inf"), "nonfinite_grad"),
        (1.0, float("nan"), "nonfinite_grad"),
    ],
)
def test_numbers_that_are_none_are_a_reason_to_skip(loss, norm, reason):
    assert reason_to_skip(loss=loss, grad_norm=norm) == reason
