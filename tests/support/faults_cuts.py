"""Cases of power cuts: a command is recorded once, every disk that it may leave is checked and recovered."""

from __future__ import annotations

import copy
import hashlib
import random
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger.errors import LedgerError
from tests.support.faults import LogWatch, Snapshot
from tests.support.faults_cases import CaseFileSystem
from tests.support.faults_disk import Disk, materialise
from tests.support.faults_power import DiskRecorder, Step, promised_logs
from tests.support.faults_scenarios import SCENARIO, Scenario


@dataclass(frozen=True)
class CutStage:
    """One recorded command: where it began, an undisturbed control, its steps, and what it wrote to the log."""

    scenario: str
    template: Path
    control: Path
    disk: Disk
    """Before the first step."""
    steps: Sequence[Step]
    attempted: bytes


@dataclass(frozen=True)
class CutState:
    """What a power cut left, and what had been acknowledged as synced by then."""

    disk: Snapshot
    promised: tuple[str, ...]
    log: bytes


def set_cut_stage(scenario: Scenario, root: Path) -> CutStage:
    """Record a command from its beginning to its end."""
    template, control = root / "template", root / "control"
    scenario.set_up(template)
    shutil.copytree(template, control)
    disk, recorder = Disk(control), DiskRecorder(control)
    with promised_logs(recorder) as watch:
        scenario.act(control, recorder)
    scenario.recover(control, CaseFileSystem(root=control))
    return CutStage(scenario.name, template, control, disk, recorder.steps, watch.attempted)


def cut_states(stage: CutStage, *, most: int, seed: int) -> list[CutState]:
    """Return the different states behind each step, of each step at most `most`."""
    chance, disk = random.Random(seed), copy.deepcopy(stage.disk)
    found: dict[bytes, CutState] = {}
    promised: list[str] = []
    log = b""
    for step in stage.steps:
        if step.kind == "promise":
            promised.append(step.path)
        elif step.kind == "promise log":
            log = step.data
        disk.take(step)
        for state in disk.states(most=most, chance=chance):
            cut = CutState(state, tuple(promised), log)
            found.setdefault(_digest(cut), cut)
    return list(found.values())


def _digest(cut: CutState) -> bytes:
    digest = hashlib.sha256(repr((cut.promised, len(cut.log))).encode())
    for path, data in cut.disk.items():
        digest.update(path.encode() + b"\0" + (b"folder" if data is None else hashlib.sha256(data).digest()))
    return digest.digest()


def try_cuts(stage: CutStage, states: Sequence[CutState], place: Path, nested: int) -> list[list[str]]:
    """Check and recover each state; `nested` more power cuts are tried in the recovery of every tenth."""
    found = []
    for number, state in enumerate(states):
        again = nested if number % 10 == 0 else 0
        found.append(_try_cut(stage, state, place, nested=again, seed=number))
    return found


def _try_cut(stage: CutStage, state: CutState, place: Path, *, nested: int, seed: int) -> list[str]:
    scenario = SCENARIO[stage.scenario]
    before = Snapshot.of(stage.template / scenario.folder)
    materialise(state.disk, place)
    try:
        watch = LogWatch()
        watch.acknowledged, watch.attempted, watch.is_tail_free = state.log, stage.attempted, True
        promised = [place / path for path in state.promised]
        problems = list(scenario.check(place / scenario.folder, before, watch, promised))
        if nested:
            problems += _cut_again(stage, place, nested=nested, seed=seed)
        try:
            scenario.recover(place, CaseFileSystem(root=place))
        except (LedgerError, struct.error) as error:
            return [*problems, f"cannot be recovered: {error}"]
        return problems + scenario.finished(place, stage.control)
    finally:
        shutil.rmtree(place)


def _cut_again(stage: CutStage, place: Path, *, nested: int, seed: int) -> list[str]:
    """Recover a copy, cut the power in it, and check what that leaves."""
    scenario = SCENARIO[stage.scenario]
    beginning, again = place.with_name(place.name + "-from"), place.with_name(place.name + "-again")
    shutil.copytree(place, beginning)
    shutil.copytree(place, again)
    try:
        disk, recorder = Disk(again), DiskRecorder(again)
        with promised_logs(recorder) as watch:
            scenario.recover(again, recorder)
        second = CutStage(stage.scenario, beginning, stage.control, disk, recorder.steps, watch.attempted)
        states = cut_states(second, most=3, seed=seed)
        chosen = random.Random(seed).sample(states, min(4 * nested, len(states)))
        return [
            f"a second time: {problem}"
            for problems in try_cuts(second, chosen, place.with_name(place.name + "-cut"), 0)
            for problem in problems
        ]
    finally:
        shutil.rmtree(again)
        shutil.rmtree(beginning)
