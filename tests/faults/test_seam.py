"""Every file operation of every writing command goes wrong in every mode, through the storage seam.

After each: nothing acknowledged is lost, every document is old or new, the audit does not fail and changes no byte,
the same fault during the recovery does no harm, and a recovery in peace passes.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import cycle, islice
from pathlib import Path

import pytest

from ledger.audit import reconcile
from tests.support.faults import CHANGING, MODE, Fault, FaultFileSystem, Snapshot
from tests.support.faults_cases import (
    CaseFileSystem,
    Stage,
    crossed,
    faults,
    few_lengths,
    many_lengths,
    run_case,
    set_stage,
    try_cases,
)
from tests.support.faults_checks import check_passed
from tests.support.faults_scenarios import SCENARIO, SCENARIOS
from tests.support.faults_tally import TALLY
from tests.support.thorough import IS_THOROUGH, spread
from tests.support.toy import Killed

QUICK_CASES = 6
"""Faults tried for each command where time is short."""


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> dict[str, Stage]:
    root = tmp_path_factory.mktemp("stages")
    for scenario in SCENARIOS:
        (root / scenario.name).mkdir()
    return {scenario.name: set_stage(scenario, root / scenario.name) for scenario in SCENARIOS}


def judge(stage: Stage, fault: Fault, problems: list[str]) -> list[str]:
    TALLY.add(stage.scenario, fault.mode, problems=problems, operations=len(stage.operations))
    return [f"{fault}: {problem}" for problem in problems]


@pytest.mark.parametrize("name", SCENARIO)
def test_an_undisturbed_command_passes_and_every_mode_is_tried(name, stages):
    stage = stages[name]
    modes = {fault.mode for fault in faults(stage.operations, lengths=few_lengths)}
    assert modes >= set(MODE) - {"EMFILE"}
    assert not SCENARIO[name].finished(stage.control, stage.control)


@pytest.mark.parametrize("name", SCENARIO)
def test_a_sample_of_faults_does_no_harm(name, stages, tmp_path):
    stage = stages[name]
    every = list(faults(stage.operations, lengths=few_lengths))
    chosen = spread(every, 2 if SCENARIO[name].most else QUICK_CASES, first=list(SCENARIO).index(name))
    problems = [
        problem
        for fault in chosen
        for problem in judge(stage, fault, run_case(stage, fault, tmp_path / "case"))
    ]
    assert not problems, "\n".join(problems[:20])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIO)
def test_no_fault_at_any_operation_does_harm(name, stages, tmp_path):
    stage = stages[name]
    if IS_THOROUGH:
        every = list(faults(stage.operations, lengths=many_lengths))
    else:
        every = crossed(stage.operations)
        every = spread(every, SCENARIO[name].most or len(every), first=0)
    halves = [every[::2], every[1::2]]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = list(pool.map(try_cases, cycle([stage]), halves, [tmp_path / "a", tmp_path / "b"]))
    problems = [
        problem
        for tried, results in zip(halves, found, strict=True)
        for fault, result in zip(tried, results, strict=True)
        for problem in judge(stage, fault, result)
    ]
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems[:20])


@pytest.mark.parametrize("name", SCENARIO)
def test_the_crossed_faults_leave_out_no_operation_and_no_mode(name, stages):
    operations = stages[name].operations
    every, chosen = list(faults(operations, lengths=few_lengths)), crossed(operations)
    assert set(chosen) <= set(every)
    assert {fault.number for fault in chosen} == set(range(len(operations)))
    assert {fault.mode for fault in chosen} == {fault.mode for fault in every}


def log_writes(stage: Stage) -> list[int]:
    return [
        number
        for number, operation in enumerate(stage.operations)
        if operation.name == "write" and operation.path.endswith("metrics.jsonl")
    ]


def torn_at_every_byte(
    name: str, stage: Stage, place: Path, writes: list[int], *, step: int
) -> Iterator[str]:
    """Kill a command before each of its writes to the log and let every length of that write reach the disk."""
    for number in writes:
        run = place / f"{number}" / "run"
        size = stage.operations[number].size
        with pytest.raises(Killed):
            SCENARIO[name].act(run.parent, CaseFileSystem(Fault("torn", number, size - 1), root=run.parent))
        whole = (run / "metrics.jsonl").read_bytes()
        for length in range(len(whole) - 1, len(whole) - size, -step):
            (run / "metrics.jsonl").write_bytes(whole[:length])
            before = Snapshot.of(run)
            verdict = reconcile(run)
            problems = [] if verdict.verdict == "incomplete" else [f"{length} bytes: {verdict.verdict}"]
            problems += [] if Snapshot.of(run) == before else ["the audit changed the run"]
            TALLY.add(name, "torn at every length", problems=problems)
            yield from problems
        SCENARIO[name].recover(run.parent, FaultFileSystem())
        yield from check_passed(run)


@pytest.mark.parametrize("name", ["session start", "append", "checkpoint", "evaluation file", "session end"])
def test_a_line_torn_at_some_lengths_is_a_torn_tail(name, stages, tmp_path):
    stage = stages[name]
    writes = log_writes(stage)[:1]
    assert not list(
        torn_at_every_byte(name, stage, tmp_path, writes, step=stage.operations[writes[0]].size // 7)
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["session start", "append", "checkpoint", "evaluation file", "session end"])
def test_a_line_torn_at_any_byte_is_a_torn_tail(name, stages, tmp_path):
    stage = stages[name]
    writes = log_writes(stage)[: 3 if IS_THOROUGH else 1]
    assert not list(torn_at_every_byte(name, stage, tmp_path, writes, step=1))


def test_a_fault_that_stays_fails_everything_after_it():
    fs = CaseFileSystem(Fault("EROFS", 0), root=Path("/nowhere"), is_watched=True)
    for _ in range(3):
        with pytest.raises(Exception, match="read-only"):
            fs.mkdir("/nowhere/at/all")
    assert fs.has_struck


def test_the_dead_write_nothing(tmp_path):
    fs = CaseFileSystem(Fault("killed before", 0), root=tmp_path, is_watched=True)
    for name in islice("abc", 3):
        with pytest.raises(Killed):
            fs.mkdir(tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert "mkdir" in CHANGING
