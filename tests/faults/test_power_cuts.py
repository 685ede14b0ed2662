"""Power cuts at every step of every writing command: whatever the disk held back, nothing that was synced is missing.

The states are worked out in Python under a model that is harsher than any common file system (`faults_power`).
"""

from __future__ import annotations

import multiprocessing
import os
import random
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.support.faults_cuts import CutStage, cut_states, set_cut_stage, try_cuts
from tests.support.faults_disk import Disk
from tests.support.faults_power import DiskRecorder
from tests.support.faults_scenarios import SCENARIO, SCENARIOS
from tests.support.faults_tally import TALLY
from tests.support.thorough import IS_THOROUGH

QUICK = 4
"""States tried for each command where time is short."""
NAMES = [scenario.name for scenario in SCENARIOS if scenario.name != "doctor"]


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> dict[str, CutStage]:
    root = tmp_path_factory.mktemp("cuts")
    for name in NAMES:
        (root / name).mkdir()
    return {name: set_cut_stage(SCENARIO[name], root / name) for name in NAMES}


def judge(name: str, results: list[list[str]]) -> list[str]:
    for problems in results:
        TALLY.add(name, "power cut", problems=problems)
    return [problem for problems in results for problem in problems]


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_power_cuts_loses_nothing_that_was_synced(name, stages, tmp_path):
    states = cut_states(stages[name], most=4, seed=1)
    chosen = random.Random(name).sample(range(len(states)), min(QUICK, len(states)))
    problems = judge(
        name, try_cuts(stages[name], [states[index] for index in chosen], tmp_path / "case", nested=0)
    )
    assert not problems, "\n".join(problems[:20])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_power_cut_loses_what_was_synced(name, stages, tmp_path):
    states = cut_states(stages[name], most=96, seed=1)
    most = SCENARIO[name].most or (700 if IS_THOROUGH else 160)
    states = random.Random(2).sample(states, min(len(states), most))
    halves = [states[::2], states[1::2]]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = pool.map(try_cuts, [stages[name]] * 2, halves, [tmp_path / "a", tmp_path / "b"], [1, 1])
        problems = [problem for results in found for problem in judge(name, results)]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])


def test_the_model_leaves_out_what_was_not_synced_and_keeps_what_was(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    disk, fs = Disk(root), DiskRecorder(root)
    with fs.opened(root / "file", os.O_WRONLY | os.O_CREAT | os.O_EXCL) as descriptor:
        fs.write(descriptor, b"synced", path=root / "file")
        fs.sync(descriptor, path=root / "file")
        fs.write(descriptor, b"more", path=root / "file")
    for step in fs.steps:
        disk.take(step)
    found = [state.get("file") for state in disk.states(most=99, chance=random.Random(0))]
    assert None in found
    assert {b"synced", b"syncedm", b"syncedmore", b"synced\0\0\0\0"} <= set(found)
    assert all(content is None or content.startswith(b"synced") for content in found)
    fs.sync_directory(root)
    disk.take(fs.steps[-1])
    assert all("file" in state for state in disk.states(most=99, chance=random.Random(0)))
    fs.rename(root / "file", root / "other")
    disk.take(fs.steps[-1])
    assert {tuple(state) for state in disk.states(most=99, chance=random.Random(0))} == {
        ("file",),
        ("other",),
    }
