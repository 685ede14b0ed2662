from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from ledger.config import dump_config, leaf_classes, load_config
from ledger.config.model import models_in
from ledger.dataset.manifest import open_dataset
from ledger.errors import ConfigError, RefusedError
from tests.trainer.tiny import VOCABULARY, tiny_config
from trainer.cli import main
from trainer.config import CosineConfig, TrainerConfig
from trainer.recipe import (
    PARTS,
    complete_config,
    config_of,
    continue_config,
    fix_end,
    parts_of,
    recipe_of,
)

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
OVERLAYS = ["overfit.yaml", "acceptance.yaml", "stability.yaml", "resume.yaml"]


def _horizon(config: TrainerConfig) -> int | None:
    assert isinstance(config.schedule, CosineConfig)
    return config.schedule.horizon


@pytest.mark.parametrize("overlay", [None, *OVERLAYS])
def test_every_shipped_configuration_loads(overlay):
    paths = [CONFIGS / "tiny.yaml"] + ([] if overlay is None else [CONFIGS / overlay])
    config = load_config(paths, model=TrainerConfig)
    assert overlay is None or config.run.purpose == overlay.removesuffix(".yaml")


def test_a_dumped_configuration_loads_on_its_own(dataset, tmp_path):
    config = tiny_config(dataset)
    path = tmp_path / "resolved.yaml"
    path.write_text(dump_config(config))
    assert load_config([path], model=TrainerConfig) == config


def test_every_leaf_has_a_class_and_a_description(dataset):
    config = tiny_config(dataset)
    assert set(leaf_classes(config).values()) == {"identity", "operational", "volatile"}
    for section in _sections(TrainerConfig):
        for name, field in section.model_fields.items():
            assert field.description or models_in(field.annotation), f"{section.__name__}.{name}"


def _sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a model and every section that it may hold."""
    yield model
    for field in model.model_fields.values():
        for section in models_in(field.annotation):
            yield from _sections(section)


def test_the_horizon_is_fixed_once(dataset):
    config = complete_config(tiny_config(dataset), open_dataset(dataset))
    fixed = fix_end(config)
    assert _horizon(fixed) == 8 * 32
    raised = config.model_copy(update={"run": config.run.model_copy(update={"target_step": 99})})
    assert _horizon(fix_end(raised, recorded=fixed)) == 8 * 32
    assert config.model.vocabulary == VOCABULARY


def test_a_recorded_recipe_loads_on_its_own(dataset):
    config = fix_end(complete_config(tiny_config(dataset), open_dataset(dataset)))
    assert config_of(recipe_of(config)) == config


def test_all_differing_identity_fields_are_named_at_once(dataset):
    completed = complete_config(tiny_config(dataset), open_dataset(dataset))
    recorded = recipe_of(fix_end(completed))
    typed = tiny_config(
        dataset, run={"seed": 8, "target_step": 4}, optimizer={"beta2": 0.9}, logging={"interval": 5}
    )
    with pytest.raises(RefusedError) as caught:
        continue_config(recorded, complete_config(typed, open_dataset(dataset)), run=Path("run"))
    message = str(caught.value)
    assert all(field in message for field in ("run.seed", "optimizer.beta2", "run.target_step"))
    assert "logging.interval" not in message


def test_a_raised_target_keeps_the_horizon(dataset):
    completed = complete_config(tiny_config(dataset), open_dataset(dataset))
    raised = complete_config(tiny_config(dataset, run={"target_step": 20}), open_dataset(dataset))
    config = continue_config(recipe_of(fix_end(completed)), raised, run=Path("run"))
    assert (config.run.target_step, _horizon(config)) == (20, 8 * 32)


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        ("model", {"width": 36}),
        ("model", {"kv_heads": 3}),
        ("checkpoint", {"policy": "interval"}),
        ("run", {"target_step": 0}),
        ("machine", {"device": "tpu"}),
        ("precision", {"name": "fp16", "initial_scale": 1e300}),
        ("precision", {"name": "fp16", "initial_scale": 1e-300}),
        ("precision", {"name": "fp16", "growth_factor": 1.0001}),
    ],
)
def test_settings_that_make_no_sense_are_refused(dataset, section, changes):
    with pytest.raises(ValueError, match=section):
        tiny_config(dataset, **{section: changes})


def test_too_small_a_vocabulary_is_refused(dataset):
    with pytest.raises(ConfigError, match="vocabulary"):
        complete_config(tiny_config(dataset, model={"vocabulary": 10}), open_dataset(dataset))


def test_an_unknown_key_names_the_nearest_one():
    with pytest.raises(ConfigError, match="learning_rate"):
        load_config([CONFIGS / "tiny.yaml"], ["optimizer.learnin_rate=1e-3"], model=TrainerConfig)


def test_resolving_needs_no_torch(dataset):
    program = "import sys; sys.modules['torch'] = None\nfrom trainer.cli import main\nmain()"
    arguments = ["resolve", "--json", "--config", str(CONFIGS / "tiny.yaml"), "--set", f"data.path={dataset}"]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    resolved = json.loads(done.stdout)
    assert resolved["config"]["model"]["vocabulary"] == VOCABULARY
    assert resolved["classes"]["run.seed"] == "identity"
    assert len(resolved["identity_sha256"]) == 64
    assert resolved["inputs"]["dataset"]["metadata_sha256"] == open_dataset(dataset).metadata_sha256


def _resolve(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ended:
        main(["resolve", "--json", *arguments])
    assert not ended.value.code
    resolved: dict[str, Any] = json.loads(capsys.readouterr().out)
    return resolved


def test_a_variant_is_laid_over_what_the_run_would_be(dataset, capsys):
    change = {
        "run": {"purpose": "stability", "target_step": 3},
        "schedule": {"name": "constant", "warmup_steps": 2},
    }
    base = ["--config", str(CONFIGS / "tiny.yaml"), "--set", f"data.path={dataset}"]
    resolved = _resolve(capsys, *base, "--variant", f"short={json.dumps(change)}")
    variant = resolved["variants"]["short"]
    assert variant["config"]["run"]["target_step"] == 3
    assert variant["config"]["schedule"] == {"name": "constant", "warmup_steps": 2}
    assert variant["config"]["data"] == resolved["config"]["data"]
    assert variant["identity_sha256"] != resolved["identity_sha256"]
    assert resolved["parts"].keys() - variant["parts"].keys() == {"cosine"}
    assert variant["parts"].keys() - resolved["parts"].keys() == {"constant"}


def test_a_shorter_rehearsal_has_the_identity_of_the_whole_run(dataset, tmp_path, capsys):
    config = tmp_path / "run.yaml"
    config.write_text("run: {target_step: null, budget: {tokens: 100000}}\npilot: {name: anything}\n")
    change = {"run": {"purpose": "stability", "target_step": 3}}
    base = ["--config", str(CONFIGS / "tiny.yaml"), "--config", str(config), "--set", f"data.path={dataset}"]
    resolved = _resolve(capsys, *base, "--variant", f"short={json.dumps(change)}")
    variant = resolved["variants"]["short"]
    assert (resolved["config"]["run"]["target_step"], variant["config"]["run"]["target_step"]) == (98, 3)
    assert variant["identity_sha256"] == resolved["identity_sha256"]
    assert "pilot" not in resolved["config"]


@pytest.mark.parametrize("typed", ["short", "short=", "short=[1]", "short={"])
def test_a_variant_that_is_none_is_refused(dataset, capsys, typed):
    base = ["resolve", "--json", "--config", str(CONFIGS / "tiny.yaml"), "--set", f"data.path={dataset}"]
    with pytest.raises(SystemExit) as ended:
        main([*base, "--variant", typed])
    assert ended.value.code == 2
    assert "--variant short" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"optimizer": {"muon": {}}}, "muon"),
        ({"precision": {"name": "fp16"}}, "fp16"),
        ({"data": {"packing": "documents"}}, "packing"),
        ({"data": {"shuffle": {"group_shards": 1}}}, "shuffle"),
        ({"data": {"sources": {"a": {"path": "a", "weight": 1.0}}}}, "mix"),
        ({"guards": {"loss": {"factor": 3.0}}}, "guards"),
    ],
)
def test_a_recipe_names_the_parts_that_it_uses(dataset, change, part):
    assert part not in parts_of(tiny_config(dataset))
    assert parts_of(tiny_config(dataset, **change))[part] == PARTS[part]


@pytest.mark.parametrize(("section", "key"), [("data", "prefetch"), ("machine", "threads")])
def test_a_number_that_no_machine_could_serve_is_refused(dataset, section, key):
    tiny_config(dataset, **{section: {key: 1_024}})
    with pytest.raises(ValidationError, match=key):
        tiny_config(dataset, **{section: {key: 1_025}})
