"""Through real processes and real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.config import dump_config
from tests.trainer.records import assert_same_training, events, sessions
from tests.trainer.tiny import tiny_config, train
from trainer.config import TrainerConfig

PATIENCE_SECONDS = 60


def _start(config: TrainerConfig, run: Path, *arguments: str) -> subprocess.Popen[str]:
    path = run.parent / f"{run.name}.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    command = [
        sys.executable,
        "-P",
        "-m",
        "trainer",
        "train",
        "--config",
        str(path),
        "--run",
        str(run),
        *arguments,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, diagnostics = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, output, diagnostics


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def _has_reached(run: Path, step: int) -> bool:
    log = run / "metrics.jsonl"
    return log.exists() and f'"step":{step},'.encode() in log.read_bytes()


@pytest.fixture
def long_config(dataset) -> TrainerConfig:
    checkpoint = {"policy": "interval", "interval": 40}
    return tiny_config(dataset, run={"target_step": 400}, checkpoint=checkpoint)


def test_killed_and_resumed_in_new_processes_is_never_stopped(long_config, tmp_path):
    control = _start(long_config, tmp_path / "control")
    killed = _start(long_config, tmp_path / "run")
    _wait_until(lambda: _has_reached(tmp_path / "run", 50), killed)
    killed.kill()
    assert _finish(killed)[0] == -signal.SIGKILL
    assert _finish(_start(long_config, tmp_path / "run", "--resume", "auto"))[0] == 0
    assert _finish(control)[0] == 0
    assert sessions(tmp_path / "run") == [("fresh", None), ("auto", "completed")]
    assert_same_training(tmp_path / "control", tmp_path / "run")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_session_after_its_window(long_config, tmp_path, number, code):
    process = _start(long_config, tmp_path / "run")
    _wait_until(lambda: _has_reached(tmp_path / "run", 10), process)
    process.send_signal(number)
    assert _finish(process)[0] == code
    end = events(tmp_path / "run")[-1]
    assert sessions(tmp_path / "run") == [("fresh", "interrupted")]
    assert (tmp_path / "run" / "checkpoints" / f"step-{end.step:08d}-s01").is_dir()
    assert train(long_config, tmp_path / "run", resume="auto") == "completed"


def test_a_refusal_is_one_sentence_and_an_exit_code(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 2})
    train(config, tmp_path / "run")
    code, output, diagnostics = _finish(_start(config, tmp_path / "run"))
    assert (code, output) == (2, "")
    assert "--resume auto" in diagnostics
    assert "Traceback" not in diagnostics
    code, _, diagnostics = _finish(
        _start(
            config, tmp_path / "run", "--resume", "auto", "--set", "run.seed=3", "--set", "batch.sequence=8"
        )
    )
    assert code == 1
    assert "run.seed" in diagnostics
    assert "batch.sequence" in diagnostics


def test_a_completed_run_started_again_says_so(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 2})
    train(config, tmp_path / "run")
    code, _, diagnostics = _finish(_start(config, tmp_path / "run", "--resume", "auto"))
    assert code == 0
    assert "complete at step 2" in diagnostics


def test_the_arithmetic_is_printed_at_the_start(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 20}, batch={"accumulation": 3})
    code, _, diagnostics = _finish(_start(config, tmp_path / "run"))
    assert code == 0
    for line in (
        "tokens per microbatch 32 = 2 sequences x 16",
        "tokens per update 96",
        "planned 1,920 tokens = 20 updates from step 0 to 20",
        "6.00 epochs",
    ):
        assert line in diagnostics
