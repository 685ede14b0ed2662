from __future__ import annotations

import pytest
import torch

from ledger.dataset.manifest import open_dataset
from ledger.errors import ConfigError
from ledger.records.documents import RunDocument
from ledger.storage.documents import read_document
from tests.trainer.tiny import VOCABULARY, tiny_config, train
from trainer.arithmetic import parameter_table, period_steps, state_bytes
from trainer.config import TrainerConfig
from trainer.model.decoder import Decoder, parameter_counts
from trainer.recipe import complete_config, fix_end
from trainer.state import build_state


def _config(dataset, **sections) -> TrainerConfig:
    return complete_config(tiny_config(dataset, **sections), open_dataset(dataset))


@pytest.mark.parametrize("model", [{}, {"tied": False, "kv_heads": 4, "layers": 3}])
def test_the_table_of_parameters_is_the_decoders(dataset, model):
    config = _config(
        dataset, model={"width": 32, "heads": 4, "kv_heads": 2, "layers": 1, "hidden": 48} | model
    )
    with torch.device("meta"):
        built = Decoder(config.model, sequence=16)
    assert parameter_table(config.model) == parameter_counts(built)


@pytest.mark.parametrize("muon", [None, {}])
def test_the_bytes_of_the_state_are_those_of_its_tensors(dataset, muon):
    config = fix_end(_config(dataset, optimizer={"learning_rate": 1e-3, "muon": muon}))
    state = build_state(config)
    found = sum(tensor.numel() * tensor.element_size() for tensor in state.model_tensors().values())
    kept = {
        name: tensor.numel() * 4
        for name, tensor in state.optimizer.expected_tensors().items()
        if not name.endswith("/step")
    }
    assert state_bytes(config) == {"parameters": found, "gradients": found, "optimizer": sum(kept.values())}


def test_a_budget_becomes_the_target_step_at_the_first_start(dataset, tmp_path):
    budget = {"tokens_per_parameter": 0.05, "period_tokens_per_parameter": 0.01}
    config = tiny_config(dataset, run={"target_step": None, "budget": budget})
    parameters = sum(parameter_table(_config(dataset).model).values())
    steps = period_steps(_config(dataset, run={"target_step": None, "budget": budget}))
    assert len(steps) == 5
    assert abs(steps[-1] * 32 - 0.05 * parameters) <= 16
    assert train(config, tmp_path / "run") == "completed"
    assert read_document(tmp_path / "run" / "run.json", RunDocument).target_step == steps[-1]
    assert train(config, tmp_path / "run", resume="auto") is None  # complete: nothing to do
    raised = tiny_config(dataset, run={"target_step": steps[-1] + 2, "budget": budget})
    assert train(raised, tmp_path / "run", resume="auto") == "completed"
    assert train(config, tmp_path / "run", resume="auto") is None  # the target in force stays


def test_a_budget_in_tokens_is_reached_at_least(dataset):
    config = fix_end(_config(dataset, run={"target_step": None, "budget": {"tokens": 33}}))
    assert config.target_step == 2
    assert config.schedule.horizon == 64  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        ({"purpose": "full", "target_step": 1, "budget": {"tokens": 64}}, "asks for 2 updates"),
        ({"target_step": None, "budget": {"tokens_per_parameter": 1e-4}}, "holds no update"),
    ],
)
def test_a_budget_that_is_none_is_refused(dataset, run, problem):
    with pytest.raises(ConfigError, match=problem):
        fix_end(_config(dataset, run=run))


def test_the_vocabulary_counts(dataset):
    assert parameter_table(_config(dataset).model)["embedding"] == VOCABULARY * 32
