from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ledger.dataset.manifest import Split, open_dataset
from ledger.recorder import EvaluationResult
from tests.trainer.tiny import VOCABULARY, tiny_config
from trainer.evaluate import evaluate
from trainer.recipe import complete_config, fix_end
from trainer.state import build_state


class Uniform(nn.Module):
    """Gives every token the same chance, and counts what it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []
        self.modes: list[bool] = []

    def forward(self, tokens: Tensor, _documents: Tensor | None = None) -> Tensor:
        self.shapes.append(tuple(tokens.shape))
        self.modes.append(self.training)
        return torch.zeros(*tokens.shape, VOCABULARY)


@pytest.fixture
def split(dataset) -> Split:
    return open_dataset(dataset).split("validation")


def _evaluate(model: nn.Module, split: Split, dataset, **given) -> EvaluationResult:
    return evaluate(model, split, tiny_config(dataset), data_sha256="0" * 64, **given)


def test_the_complete_split_includes_its_last_partial_batch(split, dataset):
    model = Uniform()
    result = _evaluate(model, split, dataset)
    assert (result.tokens, result.complete) == (149, True)
    assert model.shapes == [(2, 16)] * 4 + [(1, 16), (1, 5)]
    assert result.batches == 6


def test_a_subset_is_the_first_batches_and_incomplete(split, dataset):
    model = Uniform()
    result = _evaluate(model, split, dataset, batches=2)
    assert (result.tokens, result.batches, result.complete) == (64, 2, False)


def test_a_uniform_model_is_at_the_logarithm_of_the_vocabulary(split, dataset):
    result = _evaluate(Uniform(), split, dataset)
    assert result.loss == pytest.approx(math.log(VOCABULARY), rel=1e-6)
    assert result.metrics["perplexity"] == pytest.approx(VOCABULARY, rel=1e-5)


def test_the_perplexity_of_a_loss_that_is_no_number_is_none_either(split, dataset):
    class Diverged(Uniform):
        def forward(self, tokens: Tensor, documents: Tensor | None = None) -> Tensor:
            return super().forward(tokens, documents) * math.nan

    assert math.isnan(_evaluate(Diverged(), split, dataset).metrics["perplexity"])


def test_every_target_weighs_the_same_whatever_batch_it_fell_into(split, dataset):
    state = build_state(fix_end(complete_config(tiny_config(dataset), open_dataset(dataset))))
    losses = []
    for micro_batch in (1, 2, 5):
        config = tiny_config(dataset, evaluation={"micro_batch": micro_batch})
        losses.append(evaluate(state.model, split, config, data_sha256="0" * 64).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert losses[0] == pytest.approx(losses[2], rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_the_models_mode_is_put_back(split, dataset, training):
    model = Uniform().train(training)
    _evaluate(model, split, dataset)
    assert model.training is training
    assert not any(model.modes)


def test_gradients_and_generators_are_left_alone(split, dataset):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    result = _evaluate(Uniform(), split, dataset)
    assert torch.equal(torch.get_rng_state(), before)
    assert result.rng_before == result.rng_after


@pytest.mark.parametrize("batches", [None, 2])
def test_bits_per_byte_are_reckoned_with_the_bytes_of_the_whole_split(split, dataset, batches):
    split.inventory = split.inventory.model_copy(update={"bytes": 600})
    metrics = _evaluate(Uniform(), split, dataset, batches=batches).metrics
    assert metrics["bytes_per_token"] == 600 / 150
    assert metrics["bits_per_byte"] == pytest.approx(math.log2(VOCABULARY) * 150 / 600, rel=1e-6)


def test_without_a_byte_of_text_there_are_no_bits_per_byte(split, dataset):
    split.inventory = split.inventory.model_copy(update={"bytes": 0})
    assert "bits_per_byte" not in _evaluate(Uniform(), split, dataset).metrics
