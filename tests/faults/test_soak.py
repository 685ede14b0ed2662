"""Real training, killed hundreds of times, ends as if it never was; signals are answered truthfully."""

from __future__ import annotations

import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.checkpoints import find_checkpoints, verify_checkpoint_files
from ledger.records.events import SessionEnd
from ledger.records.layout import LOG
from tests.support.audited import assert_honest
from tests.support.faults_checks import check_passed
from tests.support.faults_server import Server
from tests.support.faults_tally import TALLY
from tests.support.reading import events
from tests.support.thorough import IS_THOROUGH
from tests.trainer.records import final_evaluation, final_tensors

pytest.importorskip("torch")

from tests.support.faults_training import write_config
from tests.trainer.tiny import write_dataset

TRAIN = "tests.support.faults_training:train"
SEED = int(os.environ.get("FAULTS_SEED", "20260101"))
KILLS = 200 if IS_THOROUGH else 50
PATIENCE_SECONDS = 2.0
"""How soon a signal must be answered."""


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "tiny")


@dataclass
class Soak:
    """One process's share of the kills: runs that are killed and resumed until they are done."""

    server: Server
    place: Path
    data: Path
    chance: random.Random
    kills: int = 0

    def settings(self) -> dict[str, dict[str, Any]]:
        """Draw what decides when things are written."""
        draw = self.chance.randint
        return {
            "run": {"target_step": draw(12, 24)},
            "batch": {"accumulation": draw(1, 3)},
            "logging": {"interval": draw(1, 5), "evidence": self.chance.random() < 0.5},
            "evaluation": {"interval": draw(4, 12), "batches": 1},
            "checkpoint": {"policy": "interval", "interval": draw(2, 5)},
        }

    def until(self, kills: int) -> list[str]:
        """Kill so many processes and return what is wrong."""
        problems: list[str] = []
        number = 0
        while self.kills < kills:
            number += 1
            problems += self.one_run(self.place / str(number))
        return problems

    def one_run(self, place: Path) -> list[str]:
        """Train a control without a break and the same with many; compare them."""
        place.mkdir(parents=True)
        settings = self.settings()
        config = str(write_config(place / "config.yaml", self.data, **settings))
        began = time.monotonic()
        assert (
            self.server.run(TRAIN, config=config, run=str(place / "control"), output=str(place / "log")) == 0
        )
        longest = time.monotonic() - began
        run = place / "run"
        while True:
            pid = self.server.start(TRAIN, config=config, run=str(run), output=str(place / "log"))
            time.sleep(self.chance.uniform(0.0, longest))
            os.kill(pid, signal.SIGKILL)
            code = self.server.wait()
            if code == 0:
                break
            assert code == -signal.SIGKILL, (place / "log").read_text()[-500:]
            self.kills += 1
            if run.exists() and self.kills % 4 == 0:
                assert_honest(run)
        problems = [*check_passed(run, rehash=False), *_differences(place / "control", run)]
        TALLY.add("training", "SIGKILL at random", problems=problems, operations=self.kills)
        return [f"{settings}: {problem}" for problem in problems]


def _differences(control: Path, run: Path) -> list[str]:
    for checkpoint in find_checkpoints(run):
        verify_checkpoint_files(checkpoint)
    last, wanted = events(run)[-1], events(control)[-1]
    pairs = {
        "parameters": (final_tensors(run), final_tensors(control)),
        "counters": (last.counters, wanted.counters),
        "final loss": (final_evaluation(run).loss, final_evaluation(control).loss),
    }
    return [f"{name} differ from the control's" for name, (found, asked) in pairs.items() if found != asked]


def soak(data: Path, tmp_path: Path, *, kills: int, processes: int) -> list[str]:
    print(f"seed {SEED}; set FAULTS_SEED for another")  # noqa: T201 - shown when the test fails
    servers = [Server() for _ in range(processes)]
    shares = [
        Soak(server, tmp_path / str(number), data, random.Random(f"{SEED} {number}"))
        for number, server in enumerate(servers)
    ]
    try:
        with ThreadPoolExecutor(processes) as pool:
            found = list(pool.map(lambda share: share.until(kills // processes), shares))
    finally:
        for server in servers:
            server.__exit__(None, None, None)
    assert sum(share.kills for share in shares) >= kills
    return [problem for problems in found for problem in problems]


@pytest.mark.slow
def test_training_that_is_killed_again_and_again_ends_as_if_it_never_was(data, tmp_path):
    assert not soak(data, tmp_path, kills=KILLS, processes=2)


@pytest.fixture(scope="module")
def server():
    with Server() as found:
        yield found


def begin(server: Server, place: Path, data: Path, **sections: dict[str, Any]) -> int:
    """Start a training that would never end and wait until it has logged something."""
    endless: dict[str, Any] = {"run": {"target_step": 1_000_000}, "evaluation": {"interval": None}} | sections
    config = write_config(place / "config.yaml", data, **endless)
    pid = server.start(TRAIN, config=str(config), run=str(place / "run"), output=str(place / "log"))
    wait_for_events(place / "run", least=1)
    return pid


def wait_for_events(run: Path, *, least: int) -> None:
    deadline = time.monotonic() + 60
    while not (run / LOG).exists() or (run / LOG).read_bytes().count(b"\n") < least:
        assert time.monotonic() < deadline, "the training does not begin"
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_training_soon_and_truthfully(number, server, data, tmp_path):
    pid = begin(server, tmp_path, data)
    wait_for_events(tmp_path / "run", least=4)
    sent = time.monotonic()
    os.kill(pid, number)
    assert server.wait() == 128 + number
    assert time.monotonic() - sent < PATIENCE_SECONDS
    last = events(tmp_path / "run")[-1]
    assert isinstance(last, SessionEnd)
    assert (last.status, last.reason) == ("interrupted", number.name)
    (saved,) = find_checkpoints(tmp_path / "run")
    assert saved.manifest.counters == last.counters
    assert reconcile(tmp_path / "run").verdict == "incomplete"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_training_at_once(number, server, data, tmp_path):
    pid = begin(server, tmp_path, data, batch={"accumulation": 30_000})
    time.sleep(0.3)
    os.kill(pid, number)
    time.sleep(0.3)
    assert not any(isinstance(event, SessionEnd) for event in events(tmp_path / "run"))
    sent = time.monotonic()
    os.kill(pid, number)
    assert server.wait() == 128 + number
    assert time.monotonic() - sent < PATIENCE_SECONDS
    last = events(tmp_path / "run")[-1]
    assert isinstance(last, SessionEnd)
    assert last.status == "interrupted"
    assert last.attempts == 0  # inside its first window
    assert_honest(tmp_path / "run")
