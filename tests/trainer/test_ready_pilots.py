"""Every shipped configuration has a rehearsal that is ready: it loads, and the trainer accepts each of its stages."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from data_prep.config import PreparationConfig
from ledger.config import load_config
from ledger.errors import ConfigError
from ledger.pilot import STAGES, Plan, plan
from ledger.pilot.processes import StageProcessError
from trainer.cli import main

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
PILOTS = {
    "tiny": ["tiny.yaml"],
    "20m": ["20m.yaml"],
    "50m": ["50m.yaml"],
    "125m": ["125m.yaml"],
    "20m-wsd": ["20m.yaml", "20m-wsd.yaml", "pilots/20m.yaml"],
}
"""Name of a pilot → what its section is laid over."""


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch):
    """Ask the trainer here: starting a process takes longer than what is tested."""

    def ask(module: str, arguments: Sequence[str]) -> Any:
        assert module == "trainer"
        said, complained = io.StringIO(), io.StringIO()
        with (
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(complained),
            pytest.raises(SystemExit) as ended,
        ):
            main(list(arguments))
        if ended.value.code:
            raise StageProcessError(complained.getvalue())
        return json.loads(said.getvalue())

    monkeypatch.setattr(plan, "ask_module", ask)
    monkeypatch.setattr(Plan, "dataset", property(lambda _: Path("/nowhere")))


def ready(name: str, root: Path, *overrides: str) -> Plan:
    files = [CONFIGS / file for file in (*PILOTS[name], f"pilots/{name}.yaml")]
    return Plan(files, overrides, root=root)


@pytest.mark.parametrize("name", PILOTS)
def test_a_ready_pilot_is_accepted_stage_by_stage(name: str, tmp_path: Path):
    pilot = ready(name, tmp_path)
    assert pilot.names == list(STAGES)
    assert pilot.config.prepare is not None
    prepare = pilot.config.prepare
    load_config([Path(path) for path in prepare.configs], prepare.overrides, model=PreparationConfig)
    resolution = pilot.resolution
    assert resolution.stages.keys() == set(STAGES) - {"prepare", "validate"}
    long_run = resolution.long_run
    for stage in ("stability", "resume"):
        assert resolution.stages[stage].identity_sha256 == long_run.identity_sha256
        assert resolution.stages[stage].config["run"]["target_step"] < long_run.config["run"]["target_step"]
    for stage in ("overfit", "acceptance"):
        assert resolution.stages[stage].config["data"]["repeat"] is not None
        assert resolution.stages[stage].config["model"] == long_run.config["model"]


def test_there_is_one_for_every_configuration_of_a_run():
    assert {path.stem for path in (CONFIGS / "pilots").glob("*.yaml")} == PILOTS.keys()
    of_one_stage = {"overfit", "acceptance", "stability", "resume"}
    assert {path.stem for path in CONFIGS.glob("*.yaml")} - of_one_stage == PILOTS.keys()


@pytest.mark.parametrize("stage", ["stability", "resume"])
def test_what_defines_the_experiment_is_not_changed_where_the_lock_takes_its_identity_from(
    stage: str, tmp_path: Path
):
    pilot = ready("tiny", tmp_path, f"pilot.{stage}.recipe.optimizer.learning_rate=1e-4")
    with pytest.raises(ConfigError, match=r"optimizer\.learning_rate: 0\.003 -> 0\.0001") as refused:
        _ = pilot.resolution
    assert refused.value.place == f"pilot.{stage}.recipe"


def test_a_stage_that_asks_for_an_unknown_setting_is_refused_by_name(tmp_path: Path):
    pilot = ready("tiny", tmp_path, "pilot.smoke.recipe.run.target_steps=4")
    with pytest.raises(StageProcessError, match="target_steps"):
        _ = pilot.resolution
