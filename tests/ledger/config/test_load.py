from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger.config import StrictModel, dump_config, leaf, leaf_classes, load_config, require_leaf_classes
from ledger.errors import ConfigError
from tests.ledger.config.models import Constant, Cosine, Experiment, Optimizer


@pytest.fixture
def load(tmp_path: Path):
    def load(*texts: str, overrides: tuple[str, ...] = ()) -> Experiment:
        paths = []
        for number, text in enumerate(texts, start=1):
            paths.append(tmp_path / f"{number}.yaml")
            paths[-1].write_text(text, encoding="utf-8")
        return load_config(paths, overrides, model=Experiment)

    return load


BASE = "optimizer: {lr: 1}\nschedule: {name: cosine, warmup_steps: 5}\nlayers: [1, 2]\n"


def test_later_file_wins_and_mappings_merge(load: Any):
    config = load(BASE, "optimizer: {betas: [0.5, 0.6]}\nbatch: 3\n")
    assert config.optimizer == Optimizer(lr=1.0, betas=(0.5, 0.6))
    assert config.batch == 3


def test_lists_are_replaced(load: Any):
    assert load(BASE, "layers: [3]\n").layers == (3,)


def test_overrides_come_after_the_files_in_their_order(load: Any):
    config = load(BASE, "batch: 3\n", overrides=("batch=4", "batch=5", "optimizer.betas=[0.1, 0.2]"))
    assert config.batch == 5
    assert config.optimizer.betas == (0.1, 0.2)


def test_only_the_merged_whole_is_validated(load: Any):
    config = load("optimizer: {lr: -1}\n", "workers: 8\n", overrides=("optimizer.lr=2", "workers=auto"))
    assert config.optimizer.lr == 2.0


def test_partial_section_keeps_what_was_said_before(load: Any):
    assert load(BASE, "schedule: {warmup_steps: 7}\n").schedule == Cosine(name="cosine", warmup_steps=7)
    assert load(BASE, "schedule: {name: cosine}\n").schedule == Cosine(name="cosine", warmup_steps=5)


def test_section_of_another_kind_starts_afresh(load: Any):
    assert load(BASE, "schedule: {name: constant}\n").schedule == Constant(name="constant")
    assert load(BASE, overrides=("schedule.name=constant",)).schedule == Constant(name="constant")


def test_override_that_a_later_one_would_drop_is_refused(load: Any):
    with pytest.raises(ConfigError, match="put the --set of 'name' first"):
        load(BASE, overrides=("schedule.warmup_steps=9", "schedule.name=constant"))


@pytest.mark.parametrize(
    ("text", "overrides", "says"),
    [
        (
            "validaton: {lr: 1}\n",
            (),
            "2.yaml: line 1, column 1: unknown key validaton (did you mean validation?)",
        ),
        ("optimizer: {learning: 1}\n", (), "unknown key optimizer.learning (known keys here: lr, betas)"),
        ("schedule: {warmup: 1}\n", (), "unknown key schedule.warmup (did you mean schedule.warmup_steps?)"),
        (
            "schedule: {name: cosin}\n",
            (),
            "schedule.name is 'cosin'; expected one of 'cosine', 'constant' (did you",
        ),
        (
            "validation: {betas: [1, 1]}\n",
            (),
            "the key validation.lr is missing; expected the base learning rate (add",
        ),
        (
            "batch: 1\n",
            ("optimizer.lrr=1",),
            "--set optimizer.lrr=1: unknown key optimizer.lrr (did you mean",
        ),
        ("batch: 1\n", ("batch=abc",), "--set batch=abc: batch is 'abc'; expected a valid integer"),
        ("batch: 1\n", ("optimizer=null",), "--set optimizer=null: optimizer is null; expected a mapping"),
        (
            "batch: x\ncountry: 1\n",
            (),
            "country is 1; expected a valid string (quote it if text is meant; also wrong: batch)",
        ),
        ("weights: {a: x}\n", (), "weights.a is 'x'; expected a valid number"),
    ],
)
def test_error_names_the_source_the_place_and_the_remedy(
    load: Any, text: str, overrides: tuple[str, ...], says: str
):
    with pytest.raises(ConfigError) as refusal:
        load(BASE, text, overrides=overrides)
    assert says in str(refusal.value)


def test_section_without_its_discriminator_says_what_it_may_be(load: Any):
    with pytest.raises(
        ConfigError, match=r"schedule does not say which name .* 'cosine', 'constant' \(add schedule"
    ):
        load("optimizer: {lr: 1}\nschedule: {warmup_steps: 1}\n")


def test_missing_key_names_the_file_to_write_it_into(load: Any):
    with pytest.raises(ConfigError, match=r"2\.yaml: the key optimizer is missing"):
        load("batch: 1\n", "batch: 2\n")


@pytest.mark.parametrize(
    "override", ["batch", "=1", "a..b=1", "batch=", "country=#x", "weights=a: 1", "x=[", "b=\udcff"]
)
def test_malformed_override_is_refused_and_shown(load: Any, override: str):
    with pytest.raises(ConfigError, match="--set"):
        load(BASE, overrides=(override,))


def test_override_with_line_breaks_is_shown_on_one_line(load: Any):
    with pytest.raises(ConfigError) as refusal:
        load(BASE, overrides=("batch=1\ncountry: x",))
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize(
    "country", ["no", "017", "1e5", "", " x ", "a: b", "# c", "é", "x\ny", "~", "null", "=", "C:\\t"]
)
def test_dumped_configuration_loads_on_its_own(load: Any, country: str):
    config = Experiment(
        optimizer=Optimizer(lr=3e-05),
        country=country,
        layers=(1, 2),
        weights={"no": 0.5, "1": 1.0},
        compiled=True,
    )
    assert load(dump_config(config)) == config


def test_dump_spells_null_out():
    assert "validation: null\n" in dump_config(Experiment(optimizer=Optimizer(lr=1.0)))


def test_every_leaf_has_its_class():
    require_leaf_classes(Experiment)
    classes = leaf_classes(Experiment(optimizer=Optimizer(lr=1.0), validation=Optimizer(lr=2.0)))
    assert classes == {
        "optimizer.lr": "identity",
        "optimizer.betas": "identity",
        "schedule.name": "identity",
        "schedule.warmup_steps": "identity",
        "country": "volatile",
        "batch": "identity",
        "workers": "operational",
        "compiled": "operational",
        "validation.lr": "identity",
        "validation.betas": "identity",
        "layers": "identity",
        "weights": "identity",
    }


def test_null_section_is_a_leaf():
    assert leaf_classes(Experiment(optimizer=Optimizer(lr=1.0)))["validation"] == "identity"


def test_leaf_without_a_class_is_a_type_error():
    class Inner(StrictModel):
        forgotten: int = 1

    class Outer(StrictModel):
        inner: Inner | None = leaf("identity", None)

    with pytest.raises(TypeError, match="forgotten has no class"):
        require_leaf_classes(Outer)
    with pytest.raises(TypeError, match=r"inner\.forgotten has no class"):
        leaf_classes(Outer(inner=Inner()))


def test_configuration_is_frozen():
    config = Experiment(optimizer=Optimizer(lr=1.0))
    with pytest.raises(ValueError, match="frozen"):
        config.batch = 2  # type: ignore[misc]


def test_a_recorded_configuration_comes_before_everything(load: Any):
    recorded = load(BASE).model_dump(mode="json")
    assert load_config((), (), model=Experiment, base=recorded) == load(BASE)
    changed = load_config((), ("batch=7",), model=Experiment, base=recorded)
    assert (changed.batch, changed.optimizer) == (7, load(BASE).optimizer)
    other = load_config((), ("schedule.name=constant",), model=Experiment, base=recorded)
    assert isinstance(other.schedule, Constant)


def test_what_is_wrong_in_a_recorded_configuration_is_named_as_such():
    with pytest.raises(ConfigError, match="the recorded recipe"):
        load_config((), (), model=Experiment, base={"optimizer": {"lr": "fast"}})
