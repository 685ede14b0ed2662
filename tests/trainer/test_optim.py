from __future__ import annotations

import pytest
import torch

from trainer.config import ModelConfig, MuonConfig, OptimizerConfig
from trainer.model.decoder import Decoder
from trainer.optim import Optimizer, partition, partition_summary
from trainer.precision import clip_gradients, gradient_norm

RATES = dict.fromkeys(("muon", "decay", "no_decay"), 1e-3)


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
    optimizer = Optimizer(groups, OptimizerConfig(learning_rate=1e-3, weight_decay=0.3))
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]


def test_muon_takes_the_matrices_of_the_blocks_and_nothing_else(model):
    groups = partition(model, has_muon=True)
    assert set(groups["decay"]) == {"embedding", "head"}
    assert len(groups["muon"]) == 2 * 4
    assert all(parameter.ndim == 2 for parameter in groups["muon"].values())
    config = OptimizerConfig(learning_rate=1e-3, weight_decay=0.3, muon=MuonConfig(weight_decay=0.2))
    found = {group["name"]: group["weight_decay"] for group in Optimizer(groups, config).param_groups}
    assert found == {"muon": 0.2, "decay": 0.3, "no_decay": 0.0}


def test_the_summary_adds_up(model):
    summary = partition_summary(partition(model))
    assert [group.name for group in summary] == ["decay", "no_decay"]
    assert sum(group.parameters for group in summary) == sum(p.numel() for p in model.parameters())
    assert sum(group.tensors for group in summary) == len(list(model.parameters()))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("muon", [None, MuonConfig()])
def test_expected_state_is_what_an_update_leaves(model, fused, muon):
    optimizer = _optimizer(model, fused=fused, muon=muon)
    assert optimizer.tensors() == {}
    _gradients(model)
    assert set(optimizer.set_rates(RATES).values()) == {1e-3}
    optimizer.step()
    left, expected = optimizer.tensors(), optimizer.expected_tensors()
    assert {name: (value.dtype, value.shape) for name, value in left.items()} == {
        name: (value.dtype, value.shape) for name, value in expected.items()
    }


@pytest.mark.parametrize("muon", [None, MuonConfig()])
def test_a_restored_optimizer_goes_on_bit_for_bit(model, muon):
    optimizer = _optimizer(model, muon=muon)
    for _ in range(2):
        _gradients(model)
        optimizer.set_rates(RATES)
        optimizer.step()
        optimizer.zero_grad()
    twin = Decoder(
        ModelConfig(vocabulary=20, width=16, layers=2, heads=2, kv_heads=1, hidden=24, tied=False), sequence=8
    )
    twin.load_state_dict(model.state_dict())
    restored = _optimizer(twin, muon=muon)
    for name, value in optimizer.tensors().items():
        restored.restore_tensor(name, value.clone())
    for one, its in ((model, optimizer), (twin, restored)):
        _gradients(one)
        its.set_rates(RATES)
        its.step()
    pairs = zip(model.parameters(), twin.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def _optimizer(model, *, fused: bool = True, muon: MuonConfig | None = None) -> Optimizer:
    config = OptimizerConfig(learning_rate=1e-3, fused=fused, muon=muon)
    return Optimizer(partition(model, has_muon=muon is not None), config)


def test_clipping_brings_the_norm_to_the_limit(model):
    _gradients(model)
    parameters = list(model.parameters())
    norm = gradient_norm(parameters).item()
    clip_gradients(parameters, norm=norm, limit=norm * 2)
    assert gradient_norm(parameters).item() == norm
    clip_gradients(parameters, norm=norm, limit=norm / 2)
    assert gradient_norm(parameters).item() == pytest.approx(norm / 2, rel=1e-5)
