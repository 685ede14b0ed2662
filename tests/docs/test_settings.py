"""The page of settings says what the configuration says, and leaves out nothing."""

from __future__ import annotations

from pathlib import Path

from ledger.config import leaf_classes, load_config
from tools.settings_page import PAGE, settings_page
from trainer.config import FOREIGN_SECTIONS, TrainerConfig

ROOT = Path(__file__).resolve().parents[2]
KINDS = [
    "schedule.name=wsd",
    "precision.name=fp16",
    "optimizer.muon={}",
    "run.budget.tokens=9",
    "guards.loss.factor=2.0",
    "guards.grad_norm.factor=2.0",
    "profiler.start_step=1",
    "data.shuffle.group_shards=1",
]


def test_it_is_as_the_configuration_says():
    assert PAGE.read_text(encoding="utf-8") == settings_page(), "run tools/settings_page.py"


def test_every_setting_of_a_recipe_is_on_it_with_its_class():
    recipe = load_config([ROOT / "configs/tiny.yaml"], KINDS, model=TrainerConfig, apart=FOREIGN_SECTIONS)
    rows = [[cell.strip() for cell in line.split("|")] for line in settings_page().splitlines()]
    found = {row[1].strip("`"): row[4] for row in rows if len(row) > 4 and row[1].startswith("`")}
    expected = {
        name: leaf_class for name, leaf_class in leaf_classes(recipe).items() if name != "data.sources"
    }
    assert expected.items() <= found.items()
    assert {"data.sources.NAME.path", "data.sources.NAME.weight"} <= found.keys()
