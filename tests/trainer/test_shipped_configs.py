"""What the shipped configurations claim of themselves in comments is recomputed here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from ledger.config import load_config
from ledger.laws.schedules import WsdSchedule, learning_rate
from trainer.arithmetic import budgeted_step, parameter_table, period_steps, state_bytes
from trainer.config import TrainerConfig, WsdConfig
from trainer.model.decoder import Decoder, parameter_counts
from trainer.recipe import fix_end

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MODELS = ("20m", "50m", "125m")
EMBEDDED_VOCABULARY = 4_096
"""What `configs/tiny.yaml` takes from the embedded corpus."""

CLAIM = re.compile(r"^# ([a-z ]+): ([0-9,]+)(?: \(.*)?$", re.MULTILINE)


def load(*names: str) -> TrainerConfig:
    config = load_config([CONFIGS / f"{name}.yaml" for name in names], model=TrainerConfig)
    model = config.model.model_copy(update={"vocabulary": config.model.vocabulary or EMBEDDED_VOCABULARY})
    return config.model_copy(update={"model": model})


def claims(name: str) -> Mapping[str, int]:
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    return {what: int(number.replace(",", "")) for what, number in CLAIM.findall(text)}


@pytest.mark.parametrize("name", MODELS)
def test_the_arithmetic_that_a_configuration_claims_is_right(name: str):
    config = load(name)
    assert config.run.budget is not None
    updates = budgeted_step(config.run.budget, config)
    assert claims(name) == {
        "parameters": sum(parameter_table(config.model).values()),
        "tokens per update": config.tokens_per_update,
        "planned updates": updates,
        "planned tokens": updates * config.tokens_per_update,
        "periods": len(period_steps(config)),
        "bytes of state": sum(state_bytes(config).values()),
    }


@pytest.mark.parametrize("name", MODELS)
def test_the_size_in_the_name_is_that_of_the_model(name: str):
    millions = sum(parameter_table(load(name).model).values()) / 1e6
    assert millions == pytest.approx(int(name.removesuffix("m")), rel=0.02)


def test_the_decay_begins_where_the_configuration_says():
    config = fix_end(load("20m", "20m-wsd"))
    assert isinstance(config.schedule, WsdConfig)
    assert config.schedule.horizon is not None
    schedule = WsdSchedule(
        horizon_tokens=config.schedule.horizon,
        warmup_steps=config.schedule.warmup_steps,
        decay_fraction=config.schedule.decay_fraction,
    )
    base = config.optimizer.learning_rate
    target = config.run.target_step or 0
    rates = {
        step: learning_rate(schedule, step=step, tokens_per_update=config.tokens_per_update, base=base)
        for step in range(1, target + 1)
    }
    (kept,) = config.checkpoint.milestone_periods
    assert claims("20m-wsd") == {
        "last update at the base rate": max(step for step, rate in rates.items() if rate == base),
        "step of the kept period": period_steps(config)[kept - 1],
    }
    assert rates[target] == 0.0


@pytest.mark.parametrize("names", [("tiny",), ("20m",), ("20m", "20m-wsd"), ("50m",), ("125m",)])
def test_the_table_of_parameters_is_that_of_the_decoder(names: tuple[str, ...]):
    config = load(*names)
    with torch.device("meta"):
        model = Decoder(config.model, sequence=config.batch.sequence)
    assert parameter_counts(model) == parameter_table(config.model)


def test_an_untied_head_is_in_the_table_too():
    model = load("20m").model.model_copy(update={"tied": False, "kv_heads": 2})
    with torch.device("meta"):
        decoder = Decoder(model, sequence=8)
    assert parameter_counts(decoder) == parameter_table(model)


def test_every_configuration_of_a_training_run_is_tried_here_or_with_the_rehearsal():
    laid_over_tiny = {"overfit", "acceptance", "stability", "resume"}
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == {
        "tiny",
        "20m-wsd",
        *MODELS,
        *laid_over_tiny,
    }
